"""What features add to a consumer loop: each part is one, and `part` is what the loop asks of them."""
