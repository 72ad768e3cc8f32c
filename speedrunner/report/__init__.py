"""What runs came to, beside each other: estimates with their intervals, and comparisons."""
