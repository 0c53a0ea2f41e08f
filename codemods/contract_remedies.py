"""What to write in place of what vLLM's interfaces of models and processors lost or changed, as sentences.

The index says what is gone or other at a release; only what takes its place has to be written down. An entry holds from
the release that it names: where several hold, the last one counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from codemods.target import release_key


@dataclass(frozen=True)
class Remedy:
    """What to do about one member of an interface."""

    since: str
    text: str
    droppable: bool = False  # nothing read it any more, so that an assignment of it may go


@dataclass(frozen=True)
class Parameter:
    """A parameter that vLLM passes to a method, and that the method need not heed."""

    method: str
    name: str
    annotation: str
    default: str


_PROMPT_ONLY = (
    "The prompt is not given to the HF processor any more: override _get_hf_mm_text for what it needs as text, "
    "_postprocess_hf_mm_data for what is made of its result, and _postprocess_prompt for changes of the prompt."
)

MEMBERS: dict[str, tuple[Remedy, ...]] = {
    "merge_by_field_config": (Remedy("0.13", "Take it out: items are always joined so.", droppable=True),),
    "multimodal_cpu_fields": (
        Remedy(
            "0.13", "Pass keep_on_cpu=True for these fields where _get_mm_fields_config makes them, and take it out."
        ),
    ),
    "embedding_padding_modules": (Remedy("0.12", "Take it out: nothing reads it any more.", droppable=True),),
    "default_pooling_type": (
        Remedy("0.14", "Set default_seq_pooling_type, or default_tok_pooling_type if it pools tokens one by one."),
    ),
    "supports_cross_encoding": (Remedy("0.18", 'Extend SupportsCrossEncoding, whose score_type is "cross-encoder".'),),
    "get_eagle3_aux_hidden_state_layers": (Remedy("0.18", "Call it get_eagle3_default_aux_hidden_state_layers."),),
    "get_language_model_spec": (
        Remedy("0.15", "Build the language model inside of `with self._mark_language_model(vllm_config):`."),
    ),
    "get_num_mm_encoder_tokens": (
        Remedy("0.32", "Override get_mm_lora_token_counts(*, modality, mm_kwargs, num_mm_embeds)."),
    ),
    "get_num_mm_connector_tokens": (
        Remedy("0.32", "Override get_mm_lora_token_counts(*, modality, mm_kwargs, num_mm_embeds)."),
    ),
    "_get_data_parser": (
        Remedy(
            "0.16",
            "Define it as get_data_parser of the processing info (what was self.info is self there), and pass "
            "expected_hidden_size=self._get_expected_hidden_size() to the parser.",
        ),
    ),
    "_to_mm_items": (Remedy("0.16", "Call self.info.parse_mm_data(mm_data)."),),
    "validate_num_items": (Remedy("0.16", "It is a method of the processing info: self.info.validate_num_items."),),
    "get_allowed_mm_limits": (Remedy("0.16", "Override or read the property allowed_mm_limits."),),
    "_hash_mm_items": (Remedy("0.17", "ProcessorInputs.get_mm_hashes makes the hashes."),),
    "allowed_mm_limits": (Remedy("0.17", "It is of the processing info: self.info.allowed_mm_limits."),),
    "supported_mm_limits": (Remedy("0.17", "It is of the processing info: self.info.supported_mm_limits."),),
    "_call_hf_processor": (Remedy("0.29", _PROMPT_ONLY),),
    "_hf_processor_applies_updates": (
        Remedy(
            "0.29", "Take it out: vLLM applies the prompt updates itself, so that _get_prompt_updates must list all."
        ),
    ),
    "_apply_hf_processor_mm_only": (Remedy("0.29", "Override _apply_hf_processor_main(mm_items, hf_kwargs)."),),
    "_apply_hf_processor_text_mm": (Remedy("0.29", "Override _apply_hf_processor_main(mm_items, hf_kwargs)."),),
    "_apply_hf_processor_text_only": (Remedy("0.29", "Override _postprocess_prompt(prompt), which has token ids."),),
    "_apply_hf_processor_tokens_only": (Remedy("0.29", "Override _postprocess_prompt(prompt), which has token ids."),),
    "_apply_text_matches": (Remedy("0.29", "Override _apply_prompt_updates_via_text(token_ids, mm_prompt_updates)."),),
    "select_text": (Remedy("0.29", "Give token ids, and mark them by select_token_id or select_token_ids."),),
    "get_dummy_processor_inputs": (
        Remedy("0.31", "Override get_dummy_inputs(seq_len, mm_counts, mm_options) of the processor."),
    ),
    "_get_hf_mm_data": (Remedy("0.31", "Override _get_hf_mm_inputs(mm_items, hf_kwargs)."),),
}
"""Members that went, or that vLLM has ceased to read."""

METHODS: dict[str, tuple[Remedy, ...]] = {
    "get_mrope_input_positions": (
        Remedy(
            "0.11.1",
            "Take (input_tokens, mm_features): each feature has modality, mm_position (offset, length) and data, whose "
            'entries such as data["image_grid_thw"].data hold what came as keyword arguments.',
        ),
    ),
    "_call_hf_processor": (
        Remedy(
            "0.31",
            "Take (hf_data, hf_kwargs): hf_data holds text, images and so on as the HF processor is called with; what "
            "was done to its result goes to _postprocess_hf_mm_data(mm_inputs, hf_kwargs, processed_data).",
        ),
    ),
    "apply": (
        Remedy("0.16", "Take mm_items, which is parsed already, in place of mm_data."),
        Remedy("0.17", "Take (inputs, timing_ctx): prompt and mm_data_items are attributes of inputs."),
    ),
    "__call__": (
        Remedy("0.16", "Take mm_items, which self.info.parse_mm_data makes of mm_data."),
        Remedy("0.17", "Take (prompt, mm_items, mm_uuid_items, hf_processor_mm_kwargs)."),
    ),
    "_cached_apply_hf_processor": (Remedy("0.17", "Take (inputs, timing_ctx): mm_data_items is one of inputs."),),
    "_apply_hf_processor": (Remedy("0.17", "Take (inputs, timing_ctx): mm_data_items is one of inputs."),),
    "create_encoder_prompt": (Remedy("0.16", "Take mm_items, which is parsed already, in place of mm_data."),),
    "create_decoder_prompt": (Remedy("0.16", "Take mm_items, which is parsed already, in place of mm_data."),),
    "_merge_mm_kwargs": (Remedy("0.12", "Take mm_is_cached behind mm_hashes: whether each item was in the cache."),),
    "_maybe_apply_prompt_updates": (
        Remedy("0.29", "Take (mm_items, prompt_ids, mm_kwargs, mm_prompt_updates): updates are never applied before."),
        Remedy("0.31", "Take (mm_items, mm_res): mm_res has prompt_ids, kwargs and prompt_updates."),
    ),
    "_apply_hf_processor_main": (Remedy("0.29", "Take (mm_items, hf_processor_mm_kwargs): there is no prompt."),),
    "get_generation_prompt": (Remedy("0.20", "Take stt_params, which has the former parameters as attributes."),),
}
"""Methods whose parameters changed."""

IGNORABLE = (
    Parameter("get_dummy_mm_data", "mm_options", "Mapping[str, BaseDummyOptions] | None", "None"),
    Parameter("get_dummy_processor_inputs", "mm_options", "Mapping[str, BaseDummyOptions] | None", "None"),
)
"""Sizes that a user may ask for; without them dummy inputs are as large as before."""

DUMMY_OPTIONS = ("vllm.config.multimodal", "BaseDummyOptions")


def remedy(table: dict[str, tuple[Remedy, ...]], name: str, version: str) -> Remedy | None:
    """The entry that holds at a release."""
    return next((r for r in reversed(table.get(name, ())) if release_key(r.since) <= release_key(version)), None)


DROPPED = frozenset({("support_torch_compile", "shape_invariants")})
"""Arguments that only told vLLM more than it needs to know: (callable, parameter)."""

RENAMED_PARAMETERS = {
    "resolve_visual_encoder_outputs": {"feature_sample_layers": "select_layers"},
    "default_pooling_type": {"pooling_type": "seq_pooling_type"},
}
"""Parameters that go by another name and mean what they meant."""

ARGUMENTS: dict[tuple[str, str], tuple[Remedy, ...]] = {
    ("ColumnParallelLinear", "output_sizes"): (
        Remedy("0.14", "Build a MergedColumnParallelLinear(input_size, output_sizes, ...) if the weights are several."),
    ),
    ("IntermediateTensors", "kv_connector_output"): (Remedy("0.23", "Take it out: the model runner keeps it itself."),),
    ("ProcessorInputs", "mm_data"): (
        Remedy("0.16", "Pass mm_items=self.info.parse_mm_data(mm_data)."),
        Remedy("0.17", "Pass mm_data_items=self.info.parse_mm_data(mm_data)."),
    ),
    ("ProcessorInputs", "tokenization_kwargs"): (Remedy("0.29", "Take it out: the prompt comes as token ids."),),
    ("BaseMultiModalProcessor", "cache"): (Remedy("0.31", "Take it out: the cache comes with the inputs."),),
    ("super().__init__", "cache"): (Remedy("0.31", "Take it out: the cache comes with the inputs."),),
}
"""What to write in place of an argument that is gone."""
