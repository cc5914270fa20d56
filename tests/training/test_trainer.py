"""The same model under transformers' Trainer: same batches, same losses, same weights."""

from dataclasses import replace

import pytest
import torch
from transformers import Trainer, TrainingArguments

from paiq.model import load_renderer
from paiq.model.prompts import collate
from paiq.training import open_run, train
from paiq.training.config import Batch, Data
from paiq.training.log import read_log
from paiq.training.prepare import fresh_model


class InOrder(Trainer):
    """Takes the samples as they come."""

    def _get_train_sampler(self, dataset=None):
        return torch.utils.data.SequentialSampler(self.train_dataset)


@pytest.fixture
def eight(run):
    # Eight samples in steps of four: the Trainer has no partial step in the middle of a run.
    return replace(run, data=Data(source=f"{run.data.source}[0:8]"), batch=Batch(size=4, micro=2))


def test_the_trainer_takes_the_same_steps(eight, tmp_path):
    opened = open_run(eight, tmp_path / "ours")
    opened.features.build(opened.processes)
    work = opened.load()
    train(work)

    model = fresh_model(eight)
    renderer = load_renderer(model.config)
    source = opened.features.samples.source
    order = [index for step in range(work.plan.steps) for index in work.plan.indices(step)]

    def batch(indices):
        texts = [renderer.for_training(source[index]) for index in indices]
        return {**collate(texts, renderer.pad_id), **opened.features.stored(indices)}

    arguments = TrainingArguments(
        output_dir=str(tmp_path / "theirs"),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_train_epochs=1,
        learning_rate=eight.optimizer.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=work.plan.warmup_steps,
        max_grad_norm=0.0,
        weight_decay=0.0,
        logging_steps=1,
        save_strategy="no",
        remove_unused_columns=False,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        optim="adamw_torch",
    )
    trainer = InOrder(model=model, args=arguments, train_dataset=order, data_collator=batch)
    trainer.train()

    theirs = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    ours = [line["loss"] for line in read_log(tmp_path / "ours" / "log.jsonl")]
    assert theirs == pytest.approx(ours, rel=1e-4)
    tensors = work.stepper.interface.state_dict()
    for name, tensor in model.interface.state_dict().items():
        torch.testing.assert_close(tensor, tensors[name], rtol=1e-3, atol=1e-4)
