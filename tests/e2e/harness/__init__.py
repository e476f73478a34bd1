"""What tests/e2e/run is made of: tool chains, the server under test, bare agents, results."""
