//! Sources of messages, and readers for parts of them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom, Take};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Bytes of a file that are read at once. A span no longer than this is read in one go through the open file.
const PIECE_BYTES: usize = 64 * 1024;

/// A whole message.
#[derive(Debug)]
pub enum Source<'a> {
    /// In memory.
    Memory(&'a [u8]),
    /// In a file that is no longer written to.
    File(PathBuf, File),
}

/// A value of a message, as a span of its bytes.
#[derive(Debug)]
pub struct Value<'a> {
    /// The message.
    pub source: &'a Source<'a>,
    /// The value's bytes, quotes or brackets included.
    pub span: Range<u64>,
}

impl Source<'_> {
    /// Opens a message that is stored in a file.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| Error::unreadable(&error))?;
        Ok(Self::File(path.to_owned(), file))
    }

    /// Returns a reader of a span, which is clipped to the message.
    pub fn reader(&self, span: Range<u64>) -> Result<Reader<'_>> {
        match self {
            Self::Memory(data) => {
                let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
                Ok(Reader::Memory(&data[at(span.start)..at(span.end).max(at(span.start))]))
            }
            Self::File(path, file) => open_span(path, file, span).map_err(|error| Error::unreadable(&error)),
        }
    }
}

fn open_span(path: &Path, mut file: &File, span: Range<u64>) -> io::Result<Reader<'static>> {
    let len = span.end.saturating_sub(span.start);
    if len <= PIECE_BYTES as u64 {
        let mut data = Vec::new();
        file.seek(SeekFrom::Start(span.start))?;
        file.take(len).read_to_end(&mut data)?;
        return Ok(Reader::Buffered(Cursor::new(data)));
    }
    // A separate file handle, since this reader may still be in use when the next value is read.
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(span.start))?;
    Ok(Reader::File(BufReader::with_capacity(PIECE_BYTES, file.take(len))))
}

/// Reader of a span of a [`Source`].
#[derive(Debug)]
pub enum Reader<'a> {
    /// From memory.
    Memory(&'a [u8]),
    /// From a file, already read into memory.
    Buffered(Cursor<Vec<u8>>),
    /// From a file, a piece at a time.
    File(BufReader<Take<File>>),
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Memory(data) => data.read(buffer),
            Self::Buffered(data) => data.read(buffer),
            Self::File(file) => file.read(buffer),
        }
    }
}

impl BufRead for Reader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self {
            Self::Memory(data) => Ok(data),
            Self::Buffered(data) => data.fill_buf(),
            Self::File(file) => file.fill_buf(),
        }
    }

    fn consume(&mut self, count: usize) {
        match self {
            Self::Memory(data) => data.consume(count),
            Self::Buffered(data) => data.consume(count),
            Self::File(file) => file.consume(count),
        }
    }
}
