"""Addresses that a URL made from a payload must not reach: this machine, its network, and the metadata of a cloud."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_OTHERS = [
    ipaddress.ip_network(network)
    for network in (
        "100.64.0.0/10",  # shared by carriers; also metadata of Alibaba Cloud
        "168.63.129.16/32",  # metadata of Azure
        "192.0.0.0/24",  # special; also metadata of Oracle Cloud
        "::/96",  # IPv4 addresses in a form that is not used any more
        "64:ff9b:1::/48",  # translated to IPv4 within a network
        "fec0::/10",  # site-local
    )
]
"""Networks that are not public, whatever the Python version counts as public."""
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")


def is_public(text: str) -> bool:
    """Return whether an IP address is one of the internet, also that within an IPv6 address that stands for IPv4."""
    address = ipaddress.ip_address(text.partition("%")[0])
    return all(_is_public(one) for one in [address, *_embedded(address)])


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address in _TRANSLATED):
        return True  # judged by what is embedded
    listed = any(address in network for network in _OTHERS if network.version == address.version)
    return address.is_global and not address.is_multicast and not listed


def _embedded(address: Address) -> list[ipaddress.IPv4Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _TRANSLATED:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [one for one in found if one is not None]
