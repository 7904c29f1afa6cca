//! Jobs that another program does in a directory of the mount: fio with a job file, or any command.

use super::program::Surroundings;
use super::run_plan::Programs;
use crate::file_error::FileError;
use crate::outcome::{Failure, Phase, Place};
use crate::package::{Template, Variables};
use crate::workload::{Job, Operation, Scale};
use harness::{Stopwatch, file_error};
use serde::Deserialize;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The work of a program that did a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ProgramWork {
    pub(super) span: Duration,
    pub(super) operations: u64,
    /// Bytes that fio moved; 0 for other programs.
    pub(super) bytes: u64,
}

/// Runs the program of a job, with `directory` in the mount and its own files in `scratch`.
pub(super) fn run_program_job(
    job: &Job,
    scale: &Scale,
    programs: &Programs,
    (directory, scratch): (&Path, &Path),
    limit: Duration,
) -> Result<ProgramWork, Failure> {
    let failed = |error: std::io::Error| {
        FileError::io(&directory.to_string_lossy())(error).into_failure(Place::Mount, Phase::Job)
    };
    fs::create_dir_all(directory).map_err(failed)?;
    let output = scratch.join("fio.json");
    let words = match job.operation {
        Operation::Fio => fio_words(job, directory, &output, scratch)?,
        _ => command_words(job, directory)?,
    };
    if !words[0].contains('/') && programs.find(&words[0]).is_none() {
        return Err(Failure::Unsupported { reason: format!("program '{}' not found", words[0]) });
    }
    let surroundings = Surroundings {
        environment: [("PATH".to_owned(), programs.search_path_text())].into(),
        dir: scratch.to_owned(),
        log: scratch.join("program.log"),
        secrets: Vec::new(),
    };
    let watch = Stopwatch::start();
    surroundings.run_alone(&words, Phase::Job, limit)?;
    let span = watch.elapsed();
    if job.operation != Operation::Fio {
        return Ok(ProgramWork { span, operations: job.operations(scale), bytes: 0 });
    }
    let text = fs::read_to_string(&output).map_err(file_error(&output)).map_err(Failure::testbed)?;
    let (operations, bytes) = parse_fio(&text).map_err(Failure::testbed)?;
    Ok(ProgramWork { span, operations, bytes })
}

/// Writes the job file of fio, and returns the words of its command.
fn fio_words(job: &Job, directory: &Path, output: &Path, scratch: &Path) -> Result<Vec<String>, Failure> {
    let script = scratch.join(format!("{}.fio", job.name));
    let text = job.script.as_deref().unwrap_or_default();
    fs::write(&script, text).map_err(file_error(&script)).map_err(Failure::testbed)?;
    Ok(vec![
        "fio".to_owned(),
        format!("--directory={}", directory.display()),
        "--output-format=json".to_owned(),
        format!("--output={}", output.display()),
        script.display().to_string(),
    ])
}

/// Returns the words of the job's command.
fn command_words(job: &Job, directory: &Path) -> Result<Vec<String>, Failure> {
    let values = Variables::from([("directory".to_owned(), directory.display().to_string())]);
    let fill = |word: &String| Template::parse(word).and_then(|template| template.fill(&values));
    job.program
        .iter()
        .flat_map(|program| &program.command)
        .map(fill)
        .collect::<Result<Vec<String>, _>>()
        .map_err(Failure::testbed)
}

/// Returns the number of operations and bytes in fio's output (`json` format of fio(1)).
fn parse_fio(text: &str) -> serde_json::Result<(u64, u64)> {
    #[derive(Deserialize)]
    struct Output {
        jobs: Vec<FioJob>,
    }
    #[derive(Deserialize)]
    struct FioJob {
        read: Direction,
        write: Direction,
    }
    #[derive(Deserialize)]
    struct Direction {
        total_ios: u64,
        io_bytes: u64,
    }
    // Warnings may stand before the document.
    let document = text.find('{').map_or(text, |start| &text[start..]);
    let output: Output = serde_json::from_str(document)?;
    let directions = output.jobs.iter().flat_map(|job| [&job.read, &job.write]);
    Ok(directions.fold((0, 0), |(ios, bytes), one| (ios + one.total_ios, bytes + one.io_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_and_bytes_of_fio_are_summed() {
        let text = r#"fio: a warning
            {"jobs": [{"read": {"total_ios": 3, "io_bytes": 12288, "bw": 1}, "write": {"total_ios": 0, "io_bytes": 0}},
                      {"read": {"total_ios": 1, "io_bytes": 4096}, "write": {"total_ios": 2, "io_bytes": 8192}}]}"#;
        assert_eq!(parse_fio(text).unwrap(), (6, 24_576));
        assert!(parse_fio("fio: failed").is_err());
    }
}
