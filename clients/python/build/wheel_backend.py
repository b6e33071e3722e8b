"""A minimal PEP 517 build backend: builds the wheel and the source archive of this package.

It exists so that the package builds offline; any other backend would have to be downloaded first.
Must hold: builds are reproducible; an unknown key in [project] is an error.
"""
import base64
import hashlib
import io
import pathlib
import tarfile
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = "tavern_client"
KNOWN = {"name", "version", "description", "readme", "requires-python", "license", "license-files", "keywords", "classifiers", "dependencies"}


def project():
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if unknown := set(found) - KNOWN:
        raise ValueError(f"pyproject.toml: wheel_backend does not support {sorted(unknown)} in [project]")
    return found


def metadata():
    about = project()
    lines = [
        "Metadata-Version: 2.4", f"Name: {about['name']}", f"Version: {about['version']}", f"Summary: {about['description']}",
        f"License-Expression: {about['license']}", *(f"License-File: {name}" for name in about["license-files"]),
        f"Keywords: {','.join(about['keywords'])}", *(f"Classifier: {name}" for name in about["classifiers"]), f"Requires-Python: {about['requires-python']}",
        *(f"Requires-Dist: {needed}" for needed in about["dependencies"]),
        "Description-Content-Type: text/markdown", "", (ROOT / about["readme"]).read_text(),
    ]
    return "\n".join(lines)


def stem():
    about = project()
    return f"{about['name'].replace('-', '_')}-{about['version']}"


def sources():
    return sorted(path for path in (ROOT / PACKAGE).iterdir() if path.suffix == ".py" or path.name == "py.typed")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name, info = f"{stem()}-py3-none-any.whl", f"{stem()}.dist-info"
    files = {f"{PACKAGE}/{path.name}": path.read_bytes() for path in sources()}
    files[f"{info}/METADATA"] = metadata().encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: wheel_backend\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files |= {f"{info}/licenses/{name}": (ROOT / name).read_bytes() for name in project()["license-files"]}
    record = [f"{path},sha256={digest(content)},{len(content)}" for path, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            wheel.writestr(entry, content)
    return name


def build_sdist(sdist_directory, config_settings=None):
    name = f"{stem()}.tar.gz"
    files = {f"{PACKAGE}/{path.name}": path.read_bytes() for path in sources()}
    for path in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "build/wheel_backend.py"):
        files[path] = (ROOT / path).read_bytes()
    files["PKG-INFO"] = metadata().encode()
    with tarfile.open(pathlib.Path(sdist_directory) / name, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"{stem()}/{path}")
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return name


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
