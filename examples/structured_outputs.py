"""vLLM's own fields, one for each kind: ``OPENAI_BASE_URL=http://localhost:8000/v1 python …``."""

from __future__ import annotations

from openai import BadRequestError, OpenAI

KINDS = {
    "regex": r"\+[1-9][0-9]{1,2}( [0-9]{2,4}){3}",
    "choice": ["four", "fourteen", "forty"],
    "json": {"enum": ["sun", "rain", None]},
    "grammar": 'start: "SELECT " ("id" | "name") " FROM cities;"',
}

if __name__ == "__main__":
    client = OpenAI(api_key="-")
    model = client.models.list().data[0].id
    for kind, value in KINDS.items():
        answer = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "Say something."}],
            extra_body={"structured_outputs": {kind: value}},
        )
        print(f"{kind:8}", answer.choices[0].message.content)
    try:
        client.completions.create(model=model, prompt="x", extra_body={"structured_outputs": {"regex": r"(a+)\1"}})
    except BadRequestError as error:  # a constraint that cannot be enforced is refused, never ignored
        print(error.code, error.param, error.message)
