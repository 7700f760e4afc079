"""Why a document does not fit its schema, and refusals as people read them: with the line and a caret under it."""

from __future__ import annotations

from dotllm.diagnosis.why import Blame, Why, explain, explain_schema

__all__ = ["Blame", "Why", "explain", "explain_schema"]
