//! `lwp fleet token`.

use lwp_serve::{Scope, Token, Tokens, secret};
use lwp_terminal::escape::printable;

use super::print;
use crate::args::{ScopeArg, TokenAddArgs, TokenCommand, TokenRemoveArgs};
use crate::failure::Failure;

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
