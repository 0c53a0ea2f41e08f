"""Models run in processes of their own: a crash, a hang or a flood of output is a result, not an end.

    this process --> warm (torch and vLLM imported once) --> keeper --> job      most levels
    this process ------------------------------------------> keeper --> job      levels that want a fresh interpreter

A keeper is forked for each job. It watches the job's time, memory and output, sends its results back, and ends whatever
the job has started. Each process ends when the one before it does, however that came about.
"""
