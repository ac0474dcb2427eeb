//! Who writes to the store: from the variables that all clients of S3 read, or from a file of AWS's form, which is read
//! again for each try. Never from a command line, which other users see.

use crate::private::read_secret;
use crate::usage::usage;
use midair_failure::Failure;
use std::fmt;
use std::path::PathBuf;

const ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
const SESSION: &str = "AWS_SESSION_TOKEN";
const FILE: &str = "AWS_SHARED_CREDENTIALS_FILE";
const PROFILE: &str = "AWS_PROFILE";

/// The most bytes of the file, and of one of its words.
const MOST_FILE: u64 = 64 << 10;
const MOST_WORD: usize = 8 << 10;

/// Who writes.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) id: String,
    pub(super) secret: String,
    /// The token of credentials that end soon.
    pub(super) session: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({})", self.id)
    }
}

/// Where they are.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Variables(Credentials),
    /// A file, and the part of it.
    File(PathBuf, String),
}

/// Returns a variable that is not empty.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Source {
    /// Finds them by variables, as `of` returns them.
    ///
    /// # Errors
    /// Where there are none that can be used.
    pub(super) fn find(of: impl Fn(&str) -> Option<String>) -> Result<Source, Failure> {
        if let (Some(id), Some(secret)) = (of(ID), of(SECRET)) {
            let made = checked(id, secret, of(SESSION));
            let made = made.ok_or_else(|| usage(format!("{ID} or {SECRET} is not one word")))?;
            return Ok(Source::Variables(made));
        }
        let usual = || Some(PathBuf::from(of("HOME")?).join(".aws/credentials"));
        let file = of(FILE).map(PathBuf::from).or_else(usual);
        let file = file.ok_or_else(|| {
            usage("nothing says who writes to the store of --push".to_owned())
                .hint(format!("set {ID} and {SECRET}, or {FILE}"))
        })?;
        let profile = of(PROFILE).unwrap_or_else(|| "default".to_owned());
        let source = Source::File(file, profile);
        source.read()?;
        Ok(source)
    }

    /// Returns them as they are now.
    ///
    /// # Errors
    /// Where the file has none, or others may read it.
    pub(super) fn read(&self) -> Result<Credentials, Failure> {
        match self {
            Source::Variables(made) => Ok(made.clone()),
            Source::File(file, profile) => {
                let bytes = read_secret(FILE, file, MOST_FILE)?;
                let found = parse(&String::from_utf8_lossy(&bytes), profile);
                found.ok_or_else(|| {
                    let file = file.display();
                    usage(format!("{FILE} {file}: it has no keys for [{profile}]"))
                })
            }
        }
    }
}

fn checked(id: String, secret: String, session: Option<String>) -> Option<Credentials> {
    let is_word = |word: &String| {
        (1..=MOST_WORD).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let are_words = is_word(&id) && is_word(&secret) && session.as_ref().is_none_or(is_word);
    (are_words && !id.contains(['/', ','])).then_some(Credentials {
        id,
        secret,
        session,
    })
}

/// Finds the keys of a part of such a file.
fn parse(text: &str, profile: &str) -> Option<Credentials> {
    let (mut is_it, [mut id, mut secret, mut session]) = (false, [const { None }; 3]);
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            is_it = name.strip_suffix(']').map(str::trim) == Some(profile);
        } else if let (true, Some((key, value))) = (is_it, line.split_once('=')) {
            let value = Some(value.trim().to_owned());
            match key.trim().to_ascii_lowercase().as_str() {
                "aws_access_key_id" => id = value,
                "aws_secret_access_key" => secret = value,
                "aws_session_token" => session = value,
                _ => {}
            }
        }
    }
    checked(id?, secret?, session)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn variables_come_first_and_the_file_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("credentials");
        let write = |text: &str, mode| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        write(
            "# comment\n[other]\naws_access_key_id=no\n[default]\naws_access_key_id = one\n\
             aws_secret_access_key=a/b+c=\n[last]\naws_session_token=no\n",
            0o600,
        );
        let path = file.display().to_string();
        let by_file = |name: &str| (name == FILE).then(|| path.clone());
        let source = Source::find(by_file).unwrap();
        let made = |id: &str, secret: &str, session: Option<&str>| Credentials {
            id: id.to_owned(),
            secret: secret.to_owned(),
            session: session.map(str::to_owned),
        };
        assert_eq!(source.read().unwrap(), made("one", "a/b+c=", None));
        let text =
            "[default]\nAWS_ACCESS_KEY_ID=two\naws_secret_access_key=x\naws_session_token=t==\n";
        write(text, 0o600);
        assert_eq!(source.read().unwrap(), made("two", "x", Some("t==")));
        assert!(!format!("{source:?}{:?}", source.read()).contains("t=="));
        // Others may read it, or it has no keys of this part.
        write(text, 0o644);
        assert!(source.read().unwrap_err().what.contains("others may read"));
        write("[default]\naws_access_key_id=two\n", 0o600);
        assert!(
            source
                .read()
                .unwrap_err()
                .what
                .contains("no keys for [default]")
        );
        let by_both = |name: &str| match name {
            ID => Some("three".to_owned()),
            SECRET => Some("y".to_owned()),
            _ => by_file(name),
        };
        let source = Source::find(by_both).unwrap();
        assert_eq!(source.read().unwrap(), made("three", "y", None));
        assert!(Source::find(|_| None).is_err());
        let with_line = |name: &str| (name == ID || name == SECRET).then(|| "a\nb".to_owned());
        assert!(Source::find(with_line).is_err());
    }
}
