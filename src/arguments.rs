//! The command line, as SPEC §1 has it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use control::keys;
use jiff::SignedDuration;

/// The version, and whether this is the command as `ship/build` makes it.
const VERSION: &str = match option_env!("TOKENTRIAGE_SHIPPED") {
    Some(_) => concat!(env!("CARGO_PKG_VERSION"), ", as ship/build makes it"),
    None => env!("CARGO_PKG_VERSION"),
};

/// An inline governor in front of model backends: every cap of a tenancy chain, checked before the request goes out.
#[derive(Debug, Parser)]
#[command(name = "tokentriage", version = VERSION, arg_required_else_help = true)]
pub struct Arguments {
    /// The config file; else tokentriage.yaml in this folder, else the file that TT_CONFIG names
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Start a model backend and a gateway in front of it, and print curl lines to try
    Demo(DemoArguments),
    /// Run the gateway
    Serve(ServeArguments),
    /// Check a config: every error at once, one a line
    Validate(ValidateArguments),
    /// Look at what the limits compile to
    Govern {
        /// What to look at.
        #[command(subcommand)]
        verb: GovernVerb,
    },
    /// Mint, list and revoke virtual keys
    Keys {
        /// What to do with keys.
        #[command(subcommand)]
        verb: KeysVerb,
    },
    /// What was spent, by node, model and day or by whatever else it is grouped
    Usage(UsageArguments),
    /// Print the audit trail
    Audit(AuditArguments),
}

/// `demo`.
#[derive(Debug, Args)]
pub struct DemoArguments {}

/// `serve`.
#[derive(Debug, Args)]
pub struct ServeArguments {}

/// `validate`.
#[derive(Debug, Args)]
pub struct ValidateArguments {
    /// Treat warnings as errors
    #[arg(long)]
    pub strict: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `govern ...`.
#[derive(Debug, Subcommand)]
pub enum GovernVerb {
    /// The compiled instances in evaluation order; with a node or key, what one request would meet
    Preview(PreviewArguments),
}

/// `govern preview`.
#[derive(Debug, Args)]
pub struct PreviewArguments {
    /// The node of a request; __global is traffic without a key
    #[arg(long, group = "subject")]
    pub node: Option<String>,
    /// The key of a request, by its kid
    #[arg(long, group = "subject", value_name = "KID")]
    pub key: Option<String>,
    /// The model that the request asks for
    #[arg(long, requires = "subject")]
    pub model: Option<String>,
    /// The path that it goes to, such as /v1/chat/completions
    #[arg(long, requires = "subject")]
    pub endpoint: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `keys ...`.
#[derive(Debug, Subcommand)]
pub enum KeysVerb {
    /// Mint a key; its secret is shown this once
    Mint(MintArguments),
    /// List all keys, revoked ones too
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key
    Revoke {
        /// The key's public id, vk_ and 12 letters and digits
        kid: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

/// `keys mint`.
#[derive(Debug, Args)]
pub struct MintArguments {
    /// The node that the key belongs to, such as org:acme/team:ml
    #[arg(long, value_parser = keys::parse_owner)]
    pub owner: String,
    /// Models it may ask for: patterns, separated by commas
    #[arg(long, value_name = "PATTERNS", value_parser = patterns)]
    pub models: Option<Patterns>,
    /// Providers it may reach: patterns, separated by commas
    #[arg(long, value_name = "PATTERNS", value_parser = patterns)]
    pub providers: Option<Patterns>,
    /// Endpoints it may call: patterns, separated by commas
    #[arg(long, value_name = "PATTERNS", value_parser = patterns)]
    pub endpoints: Option<Patterns>,
    /// Let it call endpoints that the gateway does not understand
    #[arg(long)]
    pub allow_passthrough: bool,
    /// When it stops working: a time from now, such as 90s, 24h or 30d
    #[arg(long, value_name = "TIME", value_parser = keys::parse_expiry)]
    pub expires: Option<SignedDuration>,
    /// A name for people
    #[arg(long)]
    pub name: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// A list of patterns, as one argument.
#[derive(Clone, Debug)]
pub struct Patterns(pub Vec<String>);

fn patterns(text: &str) -> Result<Patterns, String> {
    keys::parse_patterns(text).map(Patterns)
}

/// `usage`.
#[derive(Debug, Args)]
pub struct UsageArguments {
    /// What to group by: any of node, key, model, served, provider, endpoint, hour and day, separated by commas
    #[arg(long, value_name = "COLUMNS", default_value = "node,model,day")]
    pub by: String,
    /// Only this node and below
    #[arg(long)]
    pub node: Option<String>,
    /// Only this key
    #[arg(long, value_name = "KID")]
    pub key: Option<String>,
    /// Only models asked for that match this pattern
    #[arg(long, value_name = "PATTERN")]
    pub model: Option<String>,
    /// From when on: a date, or a time such as 2026-08-01T10:00:00Z, whose hour counts
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Until when: a date, whose day counts, or a time
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
    /// The zone of days, such as Europe/Berlin; else governance.timezone of the config
    #[arg(long, value_name = "ZONE")]
    pub timezone: Option<String>,
    /// Let a node's rows hold what was spent below it too; the totals count everything once
    #[arg(long)]
    pub subtree: bool,
    /// Rows to print
    #[arg(long, value_name = "ROWS", default_value_t = 1000)]
    pub limit: usize,
    /// Go on behind the rows printed before: what they said is next
    #[arg(long)]
    pub cursor: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `audit`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AuditArguments {
    /// What to do with the trail, if not print it.
    #[command(subcommand)]
    pub verb: Option<AuditVerb>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `audit ...`.
#[derive(Debug, Subcommand)]
pub enum AuditVerb {
    /// Go through the chain of hashes: exit 1 when a row was changed, removed or moved
    Verify {
        /// A hash that an earlier verification printed: one of the rows must still have it
        #[arg(long, value_name = "HASH")]
        noted: Option<String>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::Arguments;

    #[test]
    fn a_wrong_command_line_is_told_apart_from_a_right_one() {
        for (line, exit) in [
            ("validate", None),
            ("validate --strict --json --config x.yaml", None),
            ("--config x.yaml validate", None),
            ("serve --config x.yaml", None),
            ("demo", None),
            ("audit --json", None),
            ("audit verify", None),
            ("audit verify --noted abc --json", None),
            ("audit --json verify", Some(2)),
            ("audit frobnicate", Some(2)),
            ("govern preview", None),
            ("govern preview --node org:a --model m --endpoint /v1/x --json", None),
            ("govern preview --key vk_AAAAAAAAAAAA", None),
            ("keys mint --owner org:acme --models a*,b --expires 30d --allow-passthrough --name x", None),
            ("keys list --json", None),
            ("usage", None),
            ("usage --by node,key --node org:a --model gpt-* --from 2026-08-01 --subtree --json", None),
            ("usage --limit many", Some(2)),
            ("keys revoke vk_AAAAAAAAAAAA", None),
            ("--help", Some(0)),
            ("--version", Some(0)),
            ("", Some(2)),
            ("frobnicate", Some(2)),
            ("validate --no-such-flag", Some(2)),
            ("govern", Some(2)),
            ("govern preview --node a --key b", Some(2)),
            ("govern preview --model m", Some(2)),
            ("keys mint", Some(2)),
            ("keys mint --owner ", Some(2)),
            ("keys mint --owner org:a --models [", Some(2)),
            ("keys mint --owner org:a --expires soon", Some(2)),
            ("keys revoke", Some(2)),
        ] {
            let words = std::iter::once("tokentriage").chain(line.split(' ').filter(|word| !word.is_empty()));
            let got = Arguments::try_parse_from(words).err().map(|error| error.exit_code());
            assert_eq!(got, exit, "{line}");
        }
    }
}
