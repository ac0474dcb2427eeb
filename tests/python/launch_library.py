# launch_library.py LIBRARY: launch_lines.py, where the functions that launch belong to a library. So each
# caller of `launch` is the innermost line of the user's own code.
import pathlib

path = pathlib.Path(__file__).with_name("launch_lines.py")
text = path.read_text()
at = text.index("class Net:")
above = "\n" * text.count("\n", 0, at)
exec(compile(text[:at], "/usr/lib/python3/dist-packages/gpu.py", "exec"), globals())
exec(compile(above + text[at:], str(path), "exec"), globals())
