"""Statistics on collected tables."""
