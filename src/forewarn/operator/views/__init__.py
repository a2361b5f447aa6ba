"""API views: core and fleet values as the response types of `forewarn.api.v1`. No rules here."""
