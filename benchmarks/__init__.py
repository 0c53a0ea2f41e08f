"""Speed and memory of the codemod beside other tools: `python -m benchmarks`."""
