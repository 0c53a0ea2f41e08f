"""Who answers and who draws: the small models in this process, or OpenAI-compatible servers; one interface."""
