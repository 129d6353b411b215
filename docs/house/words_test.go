// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// privateWords are words that the glossary replaces, or that are metaphors of their author: they are neither in
// identifiers nor in names of files. A word of one package is allowed there by wordsOfPackages.
var privateWords = strings.Fields(`
	abroad anew bearer bearers beater bequeath blur breath crew culprit doubt doubtful door faces forgive gate gravity heard homeless
	hurry judge judged keeper ledger lineage look looked looking looks maker mend milestone moot namesakes nobody note noted oddities
	outlast posting rash remark ripens room rooms said saw says settle settled settles shelf shelve shelves somebody speak spoken
	standing starved stray strays sure survey take takes tell teller tells tend tending testament told trouble unsettled vacate
	verdict vouch vouched wants whom witness`)

// privateMessageWords are words of the glossary's last table that messages do not have.
var privateMessageWords = regexp.MustCompile(`(?i)\b(somebody|nobody|anybody|whom|anew|made again|trying on|tries on|goes on|look(s|ed|ing)? at|seen to|sees to|take(s|n)? note|tell(s|ing)?|told|left over|lets? go)\b`)

// privateCommentWords are pronouns that stand for a noun.
var privateCommentWords = regexp.MustCompile(`(?i)\b(somebody|nobody|anybody|whom|whoever|whomever)\b`)

// words are those of an identifier or of a file's name, in lower case.
func words(name string) []string {
	var list []string
	start := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || runes[i] == '_' || runes[i] == '.' || runes[i] == '-' ||
			unicode.IsUpper(runes[i]) && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			list = append(list, strings.ToLower(strings.Trim(string(runes[start:i]), "_.-")))
			start = i
		}
	}
	return list
}

// names are the identifiers that a file declares outside of functions, fields and methods among them.
func names(f *ast.File) []*ast.Ident {
	var list []*ast.Ident
	for _, d := range f.Decls {
		list = append(list, declared(d)...)
		if fun, ok := d.(*ast.FuncDecl); ok {
			if fun.Recv != nil {
				list = append(list, fun.Name)
			}
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncType, *ast.FuncLit:
				return false
			case *ast.Field:
				list = append(list, n.Names...)
			}
			return true
		})
	}
	return list
}

// message is a text of code that a user reads.
type message struct {
	text string
	pos  token.Pos
	log  bool
	keys []string
}

var logMethods = map[string]int{
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1,
	"Log": 2, "LogAttrs": 2,
}

// otherMessages are calls whose argument of this index is a text.
var otherMessages = map[string]int{"errors.New": 0, "fmt.Errorf": 0, "Degraded": 0}

// messages are the texts of log lines, errors and health.
func messages(f *ast.File) []message {
	var list []message
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == "slog" && len(call.Args) == 2 {
			if key, ok := literal(call.Args[0]); ok {
				list = append(list, message{pos: call.Pos(), log: true, keys: []string{key}})
			}
			return true
		}
		if sel.Sel.Name == "With" {
			list = append(list, message{pos: call.Pos(), log: true, keys: keysOf(call.Args)})
			return true
		}
		at, isLog := logMethods[sel.Sel.Name]
		if !isLog {
			at, ok = otherMessages[sel.Sel.Name]
			if x, isIdent := sel.X.(*ast.Ident); !ok && isIdent {
				at, ok = otherMessages[x.Name+"."+sel.Sel.Name]
			}
			if !ok {
				return true
			}
		}
		if at < len(call.Args) {
			if text, ok := literal(call.Args[at]); ok {
				m := message{text: text, pos: call.Pos(), log: isLog}
				if isLog {
					m.keys = keysOf(call.Args[at+1:])
				}
				list = append(list, m)
			}
		}
		return true
	})
	return list
}

// keysOf are the keys among the arguments of a log call.
func keysOf(args []ast.Expr) []string {
	var keys []string
	for i := 0; i < len(args); i++ {
		if key, ok := literal(args[i]); ok {
			keys = append(keys, key)
			i++
		}
	}
	return keys
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

var (
	logKey    = regexp.MustCompile(`^([a-z][a-zA-Z0-9]*|[a-z][a-z0-9_]*)$`)
	kindWord  = regexp.MustCompile(`^([A-Z]+[a-z]*[A-Z]|[A-Z]{2,}|Kubernetes|Graphviz|Nodes?|Pods?|Namespaces?|Services?|Leases?|Events?)`)
	upperWord = regexp.MustCompile(`^[A-Z]`)
)

// TestWords holds names, messages and comments to docs/glossary.md.
func TestWords(t *testing.T) {
	identifiers, inMessages, inComments, logs := map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
	for _, s := range allSources(t) {
		if !s.isGo() || s.isGenerated() {
			continue
		}
		f, err := parser.ParseFile(fileSet, s.path, s.text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		folder := path.Dir(s.path)
		for _, c := range f.Comments {
			if word := privateCommentWords.FindString(c.Text()); word != "" {
				inComments[folder] = s.path + " has " + word
			}
		}
		if s.isTest() {
			continue
		}
		for _, word := range words(strings.TrimSuffix(path.Base(s.path), ".go")) {
			if slices.Contains(privateWords, word) {
				identifiers[folder+" "+word] = path.Base(s.path)
			}
		}
		for _, id := range names(f) {
			for _, word := range words(id.Name) {
				if slices.Contains(privateWords, word) {
					identifiers[folder+" "+word] = id.Name + " in " + path.Base(s.path)
				}
			}
		}
		for _, m := range messages(f) {
			if word := privateMessageWords.FindString(m.text); word != "" {
				inMessages[folder+" "+strings.ToLower(word)] = fileSet.Position(m.pos).String() + ": " + m.text
			}
			if !m.log {
				continue
			}
			if upperWord.MatchString(m.text) && !kindWord.MatchString(m.text) || strings.HasSuffix(m.text, ".") {
				logs[folder+" "+m.text] = fileSet.Position(m.pos).String()
			}
			for _, key := range m.keys {
				if !logKey.MatchString(key) {
					logs[folder+" "+key] = fileSet.Position(m.pos).String()
				}
			}
		}
	}
	t.Run("identifiers and files", func(t *testing.T) {
		wordsOfPackages.check(t, "use the field's word: docs/glossary.md", identifiers)
	})
	t.Run("messages", func(t *testing.T) {
		wordsOfMessages.check(t, "use the field's word: docs/glossary.md", inMessages)
	})
	t.Run("comments", func(t *testing.T) {
		pronouns.check(t, "write the noun: another writer, no replica, the user", inComments)
	})
	t.Run("log", func(t *testing.T) {
		logTexts.check(t, "messages begin in lower case, or with a kind, and have no full stop; keys are in camelCase or snake_case", logs)
	})
}
