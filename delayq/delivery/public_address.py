"""Addresses that a URL made from a payload must not reach: this machine, its network, and the metadata of a cloud.

What IANA's registries of special-purpose addresses (iana-ipv4-special-registry, iana-ipv6-special-registry) do not call
globally reachable is not public. An IPv6 address that stands for an IPv4 address is judged by that one.
"""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NOT_PUBLIC = [
    ipaddress.ip_network(network)
    for network in (
        "100.64.0.0/10",  # RFC 6598: shared by carriers; also metadata of Alibaba Cloud
        "168.63.129.16/32",  # metadata of Azure
        "192.0.0.0/24",  # RFC 6890: special; also metadata of Oracle Cloud
        "192.88.99.0/24",  # RFC 7526: relays of 6to4, not used any more
        "2001::/23",  # RFC 2928: protocol assignments; also Teredo, whose tunnels end anywhere
        "2001:db8::/32",  # RFC 3849: documentation
        "3fff::/20",  # RFC 9637: documentation
    )
]
"""What is not public, whatever the Python version knows; newer registries have more than older versions."""
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
"""The only IPv6 addresses that IANA assigns to networks (RFC 4291); what is beyond stands for IPv4 or is special."""
_STANDS_FOR_IPV4 = {
    ipaddress.ip_network("::ffff:0:0/96"): 0,  # RFC 4291: mapped
    ipaddress.ip_network("::ffff:0:0:0/96"): 0,  # RFC 2765: translated
    ipaddress.ip_network("64:ff9b::/96"): 0,  # RFC 6052: translated on the internet; 64:ff9b:1::/48 is within a network
    ipaddress.ip_network("2002::/16"): 80,  # RFC 3056: 6to4
}
"""Networks of addresses that lead to an IPv4 address, and how many bits follow it."""


def is_public(text: str) -> bool:
    """Return whether an IP address is one of the internet."""
    address: Address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        for network, after in _STANDS_FOR_IPV4.items():
            if address in network:
                address = ipaddress.IPv4Address(int(address) >> after & 0xFFFFFFFF)
                break
        else:
            if address not in _GLOBAL_UNICAST:
                return False
    return address.is_global and not address.is_multicast and not any(address in network for network in _NOT_PUBLIC)
