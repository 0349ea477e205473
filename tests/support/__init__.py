"""What tests of more than one folder share."""
