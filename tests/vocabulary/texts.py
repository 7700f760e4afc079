"""Texts in many scripts, on which the tests train small tokenizers and which they spell with them."""

from __future__ import annotations

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    '{"name": "Zoë", "tags": ["a", "b"], "size": -1.5e10, "ok": true, "none": null}\n',
    "def f(x):\n    return x  # twice\n\n\tif x:\r\n        pass",
    "Voix ambiguë d’un cœur qui, au zéphyr, préfère les jattes de kiwis.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "いろはにほへと ちりぬるを。漢字と仮名。",
    "我能吞下玻璃而不伤身体。",
    "키스의 고유조건은 입술끼리 만나야 하고",
    "نص حكيم له سر قاطع وذو شأن عظيم",
    "ฉันกินกระจกได้ แต่มันไม่ทำให้ฉันเจ็บ",
    "मैं काँच खा सकता हूँ और मुझे उससे कोई चोट नहीं पहुंचती.",
    "Emoji: 😀👩‍👩‍👧‍👦🏳️‍🌈 and 𝔘𝔫𝔦𝔠𝔬𝔡𝔢, \U0010ffff, e\u0301, \ufeff, \u00a0.",
    "   spaces   before, between,  and after   ",
    "<|im_start|>user\nnames of special tokens </s> <unk> [INST]<|im_end|>",
    "1234567890 3.14159 0x1F 1_000_000",
    "a\x00b\x7fc\x1b[0m",
]
CORPUS = [sentence for sentence in SENTENCES for _ in range(4)]
