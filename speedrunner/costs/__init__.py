"""What runs cost, from their ledgers: prices, sums, checkpoints, engine time, stored accounts, tables."""
