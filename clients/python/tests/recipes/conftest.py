"""Recipes run in environments of their own, which `clients/python/test --recipes` makes and names."""

import os

collect_ignore = [] if "CALLGATE_RECIPES" in os.environ else ["test_litellm.py", "test_recipes.py"]
