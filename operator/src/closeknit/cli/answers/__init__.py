"""What commands answer with `-o json` and `-o yaml`.

Invariant: every field is in docs/reference/answers.schema.json.
"""
