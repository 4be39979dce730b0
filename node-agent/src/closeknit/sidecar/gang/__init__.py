"""How the Pods of one gang begin a run together: what a member and the meeting point decide, and how they talk."""
