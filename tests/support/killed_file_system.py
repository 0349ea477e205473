"""A file system that does nothing from some step on, as if the process had been killed there."""

from pyarrow import fs


class KilledError(OSError):
    """The process is killed here."""


class KilledAt(fs.FileSystemHandler):
    """The local file system until a step that changes it: nothing is done from that step on."""

    def __init__(self, step):
        self.local, self.left = fs.LocalFileSystem(), step

    def __getattribute__(self, name):
        if name in {"delete_dir", "delete_file", "move", "create_dir", "open_output_stream", "copy_file"}:
            self.left -= 1
            if self.left < 0:
                raise KilledError(name)
        return super().__getattribute__(name)

    def get_type_name(self):
        return "killed"

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        return self.local.get_file_info(paths)

    def get_file_info_selector(self, selector):
        return self.local.get_file_info(selector)

    def create_dir(self, path, recursive):
        self.local.create_dir(path, recursive=recursive)

    def delete_dir(self, path):
        self.local.delete_dir(path)

    def delete_file(self, path):
        self.local.delete_file(path)

    def move(self, src, dest):
        self.local.move(src, dest)

    def open_input_file(self, path):
        return self.local.open_input_file(path)

    def open_output_stream(self, path, metadata):
        return self.local.open_output_stream(path)

    def copy_file(self, src, dest):
        self.local.copy_file(src, dest)

    delete_dir_contents = delete_root_dir_contents = open_append_stream = open_input_stream = None
