"""Free reasoning, then a constrained answer: ``OPENAI_BASE_URL=http://localhost:8000/v1 python …``.

The server needs ``--reasoning-parser NAME`` (qwen3 for Qwen3). Without it, the constraint holds from the first token.
"""

from __future__ import annotations

from openai import OpenAI

if __name__ == "__main__":
    client = OpenAI(api_key="-")
    completion = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": "Is 91 a prime number? Reply with yes or no."}],
        max_completion_tokens=2000,  # reasoning tokens count, too
        extra_body={
            "structured_outputs": {"choice": ["yes", "no"]},
            "chat_template_kwargs": {"enable_thinking": True},
        },
    )
    choice = completion.choices[0]
    print("thought:", (getattr(choice.message, "reasoning", None) or "")[:60])
    print("answer:", choice.finish_reason, choice.message.content)
