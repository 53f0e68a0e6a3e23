//! `lwp fleet token`.

use clap::{Args, Subcommand, ValueEnum};
use lwp_serve::{Scope, Token, Tokens, secret};
use lwp_terminal::escape::printable;

use super::print;
use crate::args::StoreArgs;
use crate::failure::Failure;

/// `lwp fleet token`.
#[derive(Clone, Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token and print its secret, which can't be shown again
    Add(TokenAddArgs),
    /// List tokens, without their secrets
    List(StoreArgs),
    /// Remove a token; its holders are refused within seconds
    Remove(TokenRemoveArgs),
}

/// A scope of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScopeArg {
    /// Questions and pages
    Read,
    /// Adding recordings and notes
    Write,
    /// Being a machine of a cluster
    Node,
}

/// `lwp fleet token add`.
#[derive(Args, Clone, Debug)]
pub struct TokenAddArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    /// The token's name
    pub name: String,

    /// Allow these requests; the option may be repeated
    #[arg(long = "scope", value_enum, required = true)]
    pub scopes: Vec<ScopeArg>,

    /// Only recordings of this project; * stands for any letters. For tokens that write and do not
    /// read
    #[arg(long)]
    pub project: Option<String>,

    /// Refuse the token after DAYS
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u16).range(1..))]
    pub days: Option<u16>,
}

/// `lwp fleet token remove`.
#[derive(Args, Clone, Debug)]
pub struct TokenRemoveArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    /// The token's name
    pub name: String,
}

/// Makes, lists or removes tokens.
pub async fn execute(command: &TokenCommand) -> Result<(), Failure> {
    match command {
        TokenCommand::Add(args) => add(args).await,
        TokenCommand::List(args) => print(&list(&Tokens::of(&args.open().await?).await?)),
        TokenCommand::Remove(args) => remove(args).await,
    }
}

async fn add(args: &TokenAddArgs) -> Result<(), Failure> {
    let reads = args.scopes.iter().any(|scope| matches!(scope, ScopeArg::Read | ScopeArg::Node));
    if args.project.is_some() && reads {
        let cause = "a token that reads sees all projects";
        return Err(
            Failure::new(cause).with_help("leave out --project, or --scope read and --scope node")
        );
    }
    let store = args.store.open().await?;
    let mut tokens = Tokens::of(&store).await?;
    if tokens.token.iter().any(|token| token.name == args.name) {
        let cause = format!("there is a token named '{}'", args.name);
        return Err(Failure::new(cause).with_help("remove it first: lwp fleet token remove"));
    }
    let secret = secret().map_err(|error| Failure::new(format!("random numbers: {error}")))?;
    let scope = |scope: &ScopeArg| match scope {
        ScopeArg::Read => Scope::Read,
        ScopeArg::Write => Scope::Write,
        ScopeArg::Node => Scope::Node,
    };
    let mut token = Token::new(&args.name, &secret, args.scopes.iter().map(scope).collect());
    token.project.clone_from(&args.project);
    token.expires = args.days.map(lwp_serve::day_after);
    tokens.token.push(token);
    tokens.set(&store).await?;
    print(&format!("{secret}\n"))
}

fn list(tokens: &Tokens) -> String {
    let line = |token: &Token| {
        let scopes: Vec<String> =
            token.scopes.iter().map(|scope| format!("{scope:?}").to_lowercase()).collect();
        let project = token.project.as_ref().map(|name| format!("  project {}", printable(name)));
        let expires = token.expires.as_ref().map(|day| format!("  until {}", printable(day)));
        format!(
            "{}  {}{}{}\n",
            printable(&token.name),
            scopes.join(","),
            project.unwrap_or_default(),
            expires.unwrap_or_default()
        )
    };
    tokens.token.iter().map(line).collect()
}

async fn remove(args: &TokenRemoveArgs) -> Result<(), Failure> {
    let store = args.store.open().await?;
    let mut tokens = Tokens::of(&store).await?;
    let before = tokens.token.len();
    tokens.token.retain(|token| token.name != args.name);
    if tokens.token.len() == before {
        return Err(Failure::new(format!("there is no token named '{}'", args.name)));
    }
    Ok(tokens.set(&store).await?)
}
