"""A contestant of `benchmark.py finetune`: a process that fine-tunes with one library.

    python finetune_contestant.py job.json result.json

`benchmark_finetune.py` starts it, with the interpreter of an environment in which the library is
installed. The job has the same rows and settings for all; the result has the seconds of each epoch,
without evaluation, the memory, and for the development data what tools/finetune.py writes into its
predictions, which one function scores for all. Imports stand where they are used: each environment has
its own.
"""

import json
import resource
import sys
import tempfile
import time

N_BEST, MAX_ANSWER = 20, 30  # tokens, as both sides take them


def keras_bert(job):
    """Our tool, with its defaults; predictions of the last epoch, as the peers', not of the best."""
    from keras_bert.runs.finetuning_recipe import FinetuneRecipe
    from keras_bert.runs.finetuning_run import FinetuneRun

    with tempfile.TemporaryDirectory() as workdir:
        dtype = "mixed_bfloat16" if job["dtype"] == "bfloat16" else job["dtype"]
        fields = {**job["recipe"], "workdir": workdir, "dtype": dtype, "seed": job["seed"]}
        if fields["columns"] is not None:
            fields["columns"] = tuple(fields["columns"])
        run = FinetuneRun(FinetuneRecipe(**fields))
        predict, predictions = run.kind.predict, []

        def keep(*arguments):
            predictions.append(predict(*arguments))
            return predictions[-1]

        run.kind.predict = keep
        trainer, _ = run.train(job["seed"], workdir)
        return [row["seconds"] for row in trainer.history], predictions[-1]


def torch(job):
    """transformers' Trainer: rows of similar length together, padded to the longest of a batch."""
    from transformers import (
        AutoTokenizer,
        DataCollatorForTokenClassification,
        DataCollatorWithPadding,
        Trainer,
        TrainerCallback,
        TrainingArguments,
        set_seed,
    )

    set_seed(job["seed"])
    tokenizer = AutoTokenizer.from_pretrained(job["init"])
    kinds = {"tagging": TorchTagging, "answers": TorchAnswers}
    task = kinds.get(job["kind"], TorchTexts)(job, tokenizer)
    seconds, begun = [], []

    class Clock(TrainerCallback):
        def on_epoch_begin(self, *arguments, **named):
            begun.append(time.perf_counter())

        def on_epoch_end(self, *arguments, **named):
            seconds.append(time.perf_counter() - begun[-1])

    is_tagging = job["kind"] == "tagging"
    collator = DataCollatorForTokenClassification if is_tagging else DataCollatorWithPadding
    recipe = job["recipe"]
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            task.model(),
            TrainingArguments(
                folder,
                use_cpu=True,
                bf16=job["dtype"] == "bfloat16",
                per_device_train_batch_size=recipe["batch_size"],
                per_device_eval_batch_size=recipe["batch_size"],
                num_train_epochs=recipe["epochs"],
                learning_rate=recipe["learning_rate"],
                weight_decay=recipe["weight_decay"],
                warmup_ratio=recipe["warmup_rate"],
                max_grad_norm=recipe["global_clipnorm"],
                group_by_length=True,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                seed=job["seed"],
            ),
            train_dataset=task.features("train"),
            data_collator=collator(tokenizer),
            callbacks=[Clock()],
        )
        trainer.train()
        outputs = trainer.predict(task.features("dev")).predictions
    return seconds, task.read(outputs)


class TorchTexts:
    """Classification and regression of texts or pairs."""

    def __init__(self, job, tokenizer):
        self.job, self.tokenizer = job, tokenizer

    def model(self):
        from transformers import AutoModelForSequenceClassification

        names = self.job["label_names"]
        return AutoModelForSequenceClassification.from_pretrained(
            self.job["init"], num_labels=len(names) if names else 1
        )

    def features(self, split):
        rows = self.job["rows"][split]
        encoded = self.tokenizer(
            *rows["texts"], truncation=True, max_length=self.job["recipe"]["max_length"]
        )
        labels = rows["labels"]
        return [
            {**{name: encoded[name][i] for name in encoded}, "labels": labels[i]}
            for i in range(len(labels))
        ]

    def read(self, logits):
        names = self.job["label_names"]
        if not names:
            return [{"score": float(row[0])} for row in logits]
        return [{"label": names[row.argmax()]} for row in logits]


class TorchTagging:
    """Tags of words: the first piece of each word has its label; what is cut off is outside."""

    def __init__(self, job, tokenizer):
        self.job, self.tokenizer = job, tokenizer

    def model(self):
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            self.job["init"], num_labels=len(self.job["label_names"])
        )

    def features(self, split):
        features, self.firsts = [], []
        for words, tags in zip(*self.job["rows"][split].values(), strict=True):
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

    def read(self, logits):
        names, tags = self.job["label_names"], []
        for row, (count, firsts) in zip(logits, self.firsts, strict=True):
            tags.append(["O"] * count)
            for slot, word in enumerate(firsts):
                if word is not None:
                    tags[-1][word] = names[row[slot].argmax()]
        return tags


class TorchAnswers:
    """Spans over windows of the context, [CLS] where a window does not hold the answer."""

    def __init__(self, job, tokenizer):
        self.job, self.tokenizer = job, tokenizer

    def model(self):
        from transformers import AutoModelForQuestionAnswering

        return AutoModelForQuestionAnswering.from_pretrained(self.job["init"])

    def features(self, split):
        rows, recipe = self.job["rows"][split], self.job["recipe"]
        encoded = self.tokenizer(
            rows["questions"],
            rows["contexts"],
            truncation="only_second",
            max_length=recipe["max_length"],
            stride=recipe["max_length"] // 4,  # the overlap, where ours is the step
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        features, self.windows = [], []
        names = [name for name in self.tokenizer.model_input_names if name in encoded]
        for window, owner in enumerate(encoded["overflow_to_sample_mapping"]):
            parts = encoded.sequence_ids(window)
            offsets = [
                pair if part == 1 else None
                for pair, part in zip(encoded["offset_mapping"][window], parts, strict=True)
            ]
            self.windows.append((owner, offsets))
            first, last = rows["starts"][owner], rows["ends"][owner]
            begin = end = 0
            for slot, pair in enumerate(offsets):
                if pair and first >= 0:
                    begin = slot if pair[0] <= first < pair[1] else begin
                    end = slot if pair[0] < last <= pair[1] else end
            if not begin or not end:
                begin = end = 0
            of_window = {name: encoded[name][window] for name in names}
            features.append({**of_window, "start_positions": begin, "end_positions": end})
        return features

    def read(self, logits):
        import numpy as np

        contexts = self.job["rows"]["dev"]["contexts"]
        best = [(-np.inf, "")] * len(contexts)
        null = [np.inf] * len(contexts)
        for starts, ends, (owner, offsets) in zip(*logits, self.windows, strict=True):
            null[owner] = min(null[owner], float(starts[0] + ends[0]))
            slots = [slot for slot, pair in enumerate(offsets) if pair]
            begins = sorted(slots, key=lambda slot: -starts[slot])[:N_BEST]
            for begin in begins:
                for end in sorted(slots, key=lambda slot: -ends[slot])[:N_BEST]:
                    score = float(starts[begin] + ends[end])
                    if begin <= end < begin + MAX_ANSWER and score > best[owner][0]:
                        best[owner] = (score, contexts[owner][offsets[begin][0] : offsets[end][1]])
        return [
            {"answer": answer, "no_answer_margin": nothing - score}
            for (score, answer), nothing in zip(best, null, strict=True)
        ]


def keras_hub(job):
    """keras-hub's text classifier, on rows of the longest length, tokenised once before the clock."""
    import keras
    import keras_hub
    import numpy as np

    if job["kind"] not in ("classification", "regression"):
        raise ValueError("keras-hub has no model for this kind of task.")
    keras.utils.set_random_seed(job["seed"])
    if job["dtype"] == "bfloat16":
        keras.config.set_dtype_policy("mixed_bfloat16")
    recipe, names = job["recipe"], job["label_names"]
    tokenizer = keras_hub.models.BertTokenizer.from_preset(job["init"])
    backbone = keras_hub.models.BertBackbone.from_preset(job["init"])
    pack = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, recipe["max_length"])

    def read(split):
        texts = tuple(map(np.array, job["rows"][split]["texts"]))
        return {
            name: np.asarray(array)
            for name, array in pack(texts if len(texts) > 1 else texts[0]).items()
        }

    x = read("train")
    longest = int(x["padding_mask"].sum(-1).max())
    x = {name: array[:, :longest] for name, array in x.items()}
    labels = np.array(job["rows"]["train"]["labels"])
    steps = -(-len(labels) // recipe["batch_size"]) * recipe["epochs"]
    warmup = round(recipe["warmup_rate"] * steps)

    @keras.saving.register_keras_serializable()
    class Rate(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            step = keras.ops.cast(step, "float32")
            rise, fall = (step + 1) / max(warmup, 1), (steps - step) / max(steps - warmup, 1)
            return recipe["learning_rate"] * keras.ops.minimum(rise, fall)

    model = keras_hub.models.BertTextClassifier(
        backbone, len(names) if names else 1, preprocessor=None, dropout=0.1
    )
    optimizer = keras.optimizers.AdamW(
        Rate(), weight_decay=recipe["weight_decay"], global_clipnorm=recipe["global_clipnorm"]
    )
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True) if names else "mse"
    model.compile(optimizer, loss, jit_compile=job["compiled"])
    seconds, begun = [], []
    clock = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda *_: begun.append(time.perf_counter()),
        on_epoch_end=lambda *_: seconds.append(time.perf_counter() - begun[-1]),
    )
    model.fit(
        x,
        labels,
        batch_size=recipe["batch_size"],
        epochs=recipe["epochs"],
        callbacks=[clock],
        verbose=0,
    )
    logits = model.predict(read("dev"), batch_size=recipe["batch_size"], verbose=0)
    if names:
        return seconds, [{"label": names[row.argmax()]} for row in logits]
    return seconds, [{"score": float(row[0])} for row in logits]


LIBRARIES = {"keras_bert": keras_bert, "torch": torch, "keras-hub": keras_hub}


def main(job_path, result_path):
    with open(job_path) as file:
        job = json.load(file)
    seconds, predictions = LIBRARIES[job["library"]](job)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 2**30
    result = {"seconds": seconds, "predictions": predictions, "peak_memory_gib": peak}
    with open(result_path, "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
