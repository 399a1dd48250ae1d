"""The peers of `bench/peers/run`: how each is had, configured alike, started, and measured side by side."""
