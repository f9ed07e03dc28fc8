"""What the gateway costs, as ratios to a bare proxy measured in the same run. Loopback only, bounded in time."""
