"""SpeedRunner: agents that learn programmatic skills online, on open models."""
