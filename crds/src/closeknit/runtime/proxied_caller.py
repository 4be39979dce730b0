"""The header of a caller whose request went through the API server's proxy to a Pod."""

# The API server takes the Authorization that it has used itself off the request, and passes on all others.
PROXIED = "Closeknit-Authorization"
