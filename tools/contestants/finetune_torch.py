"""Fine-tuning with transformers' Trainer: rows of similar length together, padded within a batch."""

import os
import tempfile

import numpy as np
import torch
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

PACKAGES = ("torch", "transformers")
N_BEST, MAX_ANSWER, MAX_QUESTION = 20, 30, 64  # candidates, and tokens, as both sides take them


def train(job, meter):
    """(number, prediction) of each row, of the last epoch's model."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    set_seed(job["seed"])
    tokenizer = AutoTokenizer.from_pretrained(job["init"])
    task = {"tagging": Tagging, "answers": Answers}.get(job["kind"], Texts)(job, tokenizer)
    is_tagging = job["kind"] == "tagging"
    collate = (DataCollatorForTokenClassification if is_tagging else DataCollatorWithPadding)(tokenizer)
    features = {split: task.features(split) for split in ("train", "dev")}
    recipe = job["recipe"]
    batch_size = recipe["batch_size"]
    steps = -(-len(features["train"]) // batch_size) * recipe["epochs"]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            use_cpu=True,
            bf16=job["dtype"] == "bfloat16",
            torch_compile=job["setting"] == "compiled",
            per_device_train_batch_size=batch_size,
            num_train_epochs=recipe["epochs"],
            learning_rate=recipe["learning_rate"],
            warmup_steps=round(recipe["warmup_rate"] * steps),
            weight_decay=recipe["weight_decay"],
            adam_epsilon=1e-6,  # BERT's
            max_grad_norm=recipe["global_clipnorm"],
            group_by_length=True,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            seed=job["seed"],
        )
        trainer = Trainer(
            task.model(),
            arguments,
            train_dataset=features["train"],
            data_collator=collate,
            callbacks=[Clock(meter)],
        )
        trainer.train()
    return task.read(outputs(trainer.model, features["dev"], batch_size, collate, tokenizer))


def product(size, dtype):
    a, b = (torch.randn(size, size).to(getattr(torch, dtype)) for _ in range(2))
    return lambda: float((a @ b)[0, 0])


class Clock(TrainerCallback):
    """Tells a Meter of epochs and steps."""

    def __init__(self, meter):
        self.meter = meter

    def on_epoch_begin(self, *arguments, **named):
        self.meter.epoch_begins()

    def on_step_end(self, *arguments, **named):
        self.meter.step_ends()

    def on_epoch_end(self, *arguments, **named):
        self.meter.epoch_ends()


def outputs(model, features, batch_size, collate, tokenizer):
    """(number, logits) of each feature.

    Not `Trainer.predict`: with `group_by_length` its answers come in another order than the rows.
    """
    model.eval()
    order = sorted(range(len(features)), key=lambda number: len(features[number]["input_ids"]))
    for begin in range(0, len(order), batch_size):
        numbers = order[begin : begin + batch_size]
        batch = collate(
            [
                {name: features[n][name] for name in tokenizer.model_input_names if name in features[n]}
                for n in numbers
            ]
        )
        with torch.no_grad():
            output = model(**batch)
        logits = [output.logits] if "logits" in output else [output.start_logits, output.end_logits]
        yield from zip(
            numbers, zip(*(each.float().numpy() for each in logits), strict=True), strict=True
        )


class Texts:
    """Classification and regression of texts or pairs."""

    def __init__(self, job, tokenizer):
        self.job, self.tokenizer = job, tokenizer

    def model(self):
        names = self.job["label_names"]
        return AutoModelForSequenceClassification.from_pretrained(
            self.job["init"], num_labels=len(names) if names else 1
        )

    def features(self, split):
        rows = self.job["rows"][split]
        encoded = self.tokenizer(
            *rows["texts"], truncation=True, max_length=self.job["recipe"]["max_length"]
        )
        return [
            {**{name: encoded[name][i] for name in encoded}, "labels": label}
            for i, label in enumerate(rows["labels"])
        ]

    def read(self, outputs):
        names = self.job["label_names"]
        if names:
            return [(number, {"label": names[logits.argmax()]}) for number, (logits,) in outputs]
        return [(number, {"score": float(logits[0])}) for number, (logits,) in outputs]


class Tagging:
    """Tags of words: the first piece of each word has its label; what is cut off is outside."""

    def __init__(self, job, tokenizer):
        self.job, self.tokenizer = job, tokenizer

    def model(self):
        return AutoModelForTokenClassification.from_pretrained(
            self.job["init"], num_labels=len(self.job["label_names"])
        )

    def features(self, split):
        features, self.firsts = [], []
        rows = self.job["rows"][split]
        for words, tags in zip(rows["words"], rows["tags"], strict=True):
            encoded = self.tokenizer(
                words,
                is_split_into_words=True,
                truncation=True,
                max_length=self.job["recipe"]["max_length"],
            )
            owners = encoded.word_ids()
            firsts = [
                word if word is not None and word != before else None
                for word, before in zip(owners, [None, *owners], strict=False)
            ]
            self.firsts.append((len(words), firsts))
            labels = [-100 if word is None else tags[word] for word in firsts]
            features.append({**encoded, "labels": labels})
        return features

    def read(self, outputs):
        names, predictions = self.job["label_names"], []
        for number, (logits,) in outputs:
            count, firsts = self.firsts[number]
            tags = ["O"] * count
            for slot, word in enumerate(firsts):
                if word is not None:
                    tags[word] = names[logits[slot].argmax()]
            predictions.append((number, tags))
        return predictions


class Answers:
    """Spans over windows of the context, [CLS] where a window does not hold the answer."""

    def __init__(self, job, tokenizer):
        self.job, self.tokenizer = job, tokenizer

    def model(self):
        return AutoModelForQuestionAnswering.from_pretrained(self.job["init"])

    def features(self, split):
        rows, features, self.windows = self.job["rows"][split], [], []
        for owner, fields in enumerate(zip(*rows.values(), strict=True)):
            question, context, first, last = fields
            encoded = self.encode(question, context)
            names = [name for name in self.tokenizer.model_input_names if name in encoded]
            for window, pairs in enumerate(encoded["offset_mapping"]):
                parts = encoded.sequence_ids(window)
                offsets = [pair if part == 1 else None for pair, part in zip(pairs, parts, strict=True)]
                self.windows.append((owner, offsets))
                begin, end = answer_slots(offsets, first, last)
                of_window = {name: encoded[name][window] for name in names}
                features.append({**of_window, "start_positions": begin, "end_positions": end})
        return features

    def encode(self, question, context):
        """Windows with as many tokens from one to the next as ours; the tokenizer wants the overlap."""
        recipe, tokenizer = self.job["recipe"], self.tokenizer
        asked = tokenizer(question, add_special_tokens=False, return_offsets_mapping=True)
        offsets = asked["offset_mapping"][:MAX_QUESTION]
        if len(asked["input_ids"]) > MAX_QUESTION:
            question = question[: offsets[-1][1]]
        room = recipe["max_length"] - tokenizer.num_special_tokens_to_add(pair=True) - len(offsets)
        return tokenizer(
            [question],
            [context],
            truncation="only_second",
            max_length=recipe["max_length"],
            stride=room - recipe["stride"],
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )

    def read(self, outputs):
        contexts = self.job["rows"]["dev"]["contexts"]
        best = [(-np.inf, "")] * len(contexts)
        null = [np.inf] * len(contexts)
        for number, (starts, ends) in outputs:
            owner, offsets = self.windows[number]
            null[owner] = min(null[owner], float(starts[0] + ends[0]))
            slots = [slot for slot, pair in enumerate(offsets) if pair]
            finals = sorted(slots, key=lambda slot: -ends[slot])[:N_BEST]
            for begin in sorted(slots, key=lambda slot: -starts[slot])[:N_BEST]:
                for end in finals:
                    score = float(starts[begin] + ends[end])
                    if begin <= end < begin + MAX_ANSWER and score > best[owner][0]:
                        best[owner] = (score, contexts[owner][offsets[begin][0] : offsets[end][1]])
        return [
            (
                number,
                {
                    "answer": answer,
                    "answers": [{"answer": answer}] if answer else [],
                    "no_answer_margin": nothing - score,
                },
            )
            for number, ((score, answer), nothing) in enumerate(zip(best, null, strict=True))
        ]


def answer_slots(offsets, first, last):
    """First and last token of an answer, 0 and 0 where the window does not hold all of it.

    Args:
        offsets: Where each token lies in the text; None for those of the question.
        first, last: The answer's characters; -1 where there is none.
    """
    slots = [slot for slot, pair in enumerate(offsets) if pair]
    if first < 0 or not slots or offsets[slots[0]][0] > first or offsets[slots[-1]][1] < last:
        return 0, 0
    holding = [slot for slot in slots if offsets[slot][1] > first and offsets[slot][0] < last]
    return (holding[0], holding[-1]) if holding else (0, 0)
