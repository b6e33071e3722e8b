//! Files that the server serves: embedded with their gzip and Brotli forms, so that nothing is compressed at run time.
//! Part of the build script.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// A compressed form is kept if it saves at least a twentieth; images do not.
const WORTH: fn(usize, usize) -> bool = |compressed, whole| compressed < whole - whole / 20;

pub struct Embedder {
    folder: PathBuf,
    written: usize,
    /// Brotli's quality: the best takes seconds, which a release build may take.
    quality: u32,
}

impl Embedder {
    /// Writes into this folder.
    pub fn new(folder: PathBuf) -> io::Result<Embedder> {
        fs::create_dir_all(&folder)?;
        let release = env::var("OPT_LEVEL").is_ok_and(|level| level == "3");
        Ok(Embedder { folder, written: 0, quality: if release { 11 } else { 5 } })
    }

    /// A static list of files, by name.
    pub fn list(&mut self, name: &str, files: &[(String, Vec<u8>)]) -> io::Result<String> {
        let mut list = format!("pub static {name}: &[EmbeddedFile] = &[\n");
        for (name, bytes) in files {
            let tag = tag_of(bytes);
            let whole = self.write(bytes)?;
            let gzip = self.form(bytes, gzip(bytes)?)?;
            let brotli = self.form(bytes, brotli(bytes, self.quality)?)?;
            writeln!(
                list,
                "    EmbeddedFile {{ name: {name:?}, tag: {tag:?}, bytes: include_bytes!({whole:?}), \
                 gzip: {gzip}, brotli: {brotli} }},"
            )
            .map_err(io::Error::other)?;
        }
        list.push_str("];\n");
        Ok(list)
    }

    fn form(&mut self, whole: &[u8], compressed: Vec<u8>) -> io::Result<String> {
        if !WORTH(compressed.len(), whole.len()) {
            return Ok("None".to_owned());
        }
        let path = self.write(&compressed)?;
        Ok(format!("Some(include_bytes!({path:?}))"))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<PathBuf> {
        self.written += 1;
        let path = self.folder.join(self.written.to_string());
        fs::write(&path, bytes)?;
        Ok(path)
    }
}

/// The files of a folder, by name; not those of folders in it.
pub fn folder(path: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    println!("cargo::rerun-if-changed={}", path.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|_| path.is_file()) {
            println!("cargo::rerun-if-changed={}", path.display());
            files.push((name.to_owned(), fs::read(&path)?));
        }
    }
    files.sort();
    Ok(files)
}

/// The same bytes have the same tag.
fn tag_of(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("{:016x}{:x}", hasher.finish(), bytes.len())
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn brotli(bytes: &[u8], quality: u32) -> io::Result<Vec<u8>> {
    let mut encoder = brotli::CompressorWriter::new(Vec::new(), 64 * 1024, quality, 22);
    encoder.write_all(bytes)?;
    Ok(encoder.into_inner())
}
