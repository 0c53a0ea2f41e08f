"""Version guards: `if` and `try` statements that ask which vLLM runs, and what is left of them at a target."""
