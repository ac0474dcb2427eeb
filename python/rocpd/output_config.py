"""Where files go and what they look like, under AMD's names."""

__all__ = ["output_config"]

# The options of `rocpd convert` by AMD's names of properties: True is a flag.
_OPTIONS = {
    "output_path": "--output-path",
    "output_file": "--output-file",
    "agent_index_value": "--agent-index-value",
    "group_by_queue": "--group-by-queue",
    "kernel_rename": "--kernel-rename",
    "perfetto_backend": "--perfetto-backend",
    "perfetto_buffer_fill_policy": "--perfetto-buffer-fill-policy",
    "perfetto_buffer_size": "--perfetto-buffer-size",
    "perfetto_shmem_size_hint": "--perfetto-shmem-size-hint",
}


class output_config:
    """Properties of the output. One that does not exist is refused."""

    def __init__(self, **properties):
        vars(self).update(dict.fromkeys(_OPTIONS))
        self.update(**properties)

    def update(self, strict=True, **properties):
        for name, value in properties.items():
            if name in _OPTIONS:
                setattr(self, name, value)
            elif strict:
                raise KeyError(f"output_config has no property {name}")
        return self

    def words(self):
        """The words of the command line."""
        words = []
        for name, option in _OPTIONS.items():
            value = getattr(self, name)
            if value is True:
                words.append(option)
            elif value not in (None, False):
                words += [option, str(value)]
        return words
