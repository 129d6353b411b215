// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/printable/printabletest"
)

// readOfRunning are the commands that ask an operator, etcd or remote clusters, with each of their options: TestTextsOfOthersAreEscaped reads what they print.
// Words that begin with $ are replaced.
var readOfRunning = []string{
	"status", "status -v", "status --json", "status health", "status graph",
	"status clustermesh --server-address=$API", "status clustermesh --verbose --server-address=$API", "status clustermesh -o json --server-address=$API",
	"status clustermesh -o yaml --server-address=$API", "status clustermesh -o jsonpath={[*].status} --server-address=$API",
	"writes", "writes --json", "explain $OBJECT", "explain --json $OBJECT", "explain --namespace=$NAMESPACE Service/$HOSTILE",
	"metrics list", "metrics list -p cilium", "metrics list -o json", "metrics list -o yaml", "metrics list -o jsonpath={[*].labels} --server-address=$API",
	"shell db/dump", "shell health", "shell metrics", "shell kvstore/list --etcd-config=$ETCD",
	"kvstore list --etcd-config=$ETCD", "kvstore list -o plain --timeout=20s --etcd-config=$ETCD", "kvstore list -o json --etcd-config=$ETCD cilium/",
	"troubleshoot kvstore --timeout=20s --etcd-config=$ETCD", "troubleshoot clustermesh --timeout=20s --clustermesh-config=$REMOTES", "troubleshoot clustermesh $HOSTILE",
}

// readOfFiles are the commands that know the options and files alone: TestTextsOfFilesAreEscaped reads what they print.
var readOfFiles = []string{
	"graph -o text", "graph -o order", "graph -o dot --full", "graph -o mermaid", "graph -o json", "cells", "cells -v", "cells --json",
	"config -o text", "config --diff", "config --unknown", "config -o json", "config -o yaml", "why cluster-name", "why ipam", "why release",
	"validate", "validate -v", "validate --build", "hive", "hive dot-graph", "metrics describe -o text", "metrics describe -o json", "metrics describe -o yaml -p a", "version",
	"rbac --role-name=$HOSTILE", "rbac --optional=false", "--version", "shell help",
}

// notRead are commands, and their options, that no test of texts reads, and why.
var notRead = map[string]string{
	"help": "it is of the program", "completion": "it is of the program", "cmdref": "it is of the program", " --cmdref": "it is of the program",
	"metrics dump features": "it is of the program, and goes to a file",
	"writes --follow":       "its lines are those without it, and do not end",
	"graph -o svg":          "cmd/graphdraw draws it, and tests it", "graph -o html": "cmd/graphdraw draws it, and tests it",
	" -o text": "TestTextsOfOthersAreEscaped reads the plan", " -o json": "TestTextsOfOthersAreEscaped reads the plan",
}

// K6 of the contract's tenants.md: a test reads each command of the program, with each of its options, and each command of its shell.
func TestEveryCommandIsRead(t *testing.T) {
	h := hive.New("operator", withClouds, hive.Environ(nil))
	root := command.New("operator", withClouds, hive.Environ(nil))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	readings := map[*cobra.Command][]string{}
	for _, line := range slices.Concat(readOfRunning, readOfFiles) {
		cmd, _, err := root.Find(strings.Fields(line))
		if err != nil {
			t.Errorf("there is no command %s: %v", line, err)
			continue
		}
		readings[cmd] = append(readings[cmd], line)
	}
	for _, missing := range unread(root, readings) {
		t.Errorf("no test of texts reads %q: add it to readOfRunning, to readOfFiles, or to notRead why not", missing)
	}
	h.Annotations(func(_ string, a any) {
		if c, is := a.(command.ShellCommand); is && !slices.ContainsFunc(readOfRunning, func(line string) bool { return strings.HasPrefix(line+" ", "shell "+c.Name+" ") }) {
			t.Errorf("no test of texts reads shell %s: add it to readOfRunning", c.Name)
		}
	})
}

// unread are the commands below one, and options of these, that have no reading and no reason.
func unread(cmd *cobra.Command, readings map[*cobra.Command][]string) (all []string) {
	name := strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()))
	if notRead[name] != "" {
		return nil
	}
	for _, sub := range cmd.Commands() {
		all = append(all, unread(sub, readings)...)
	}
	if !cmd.Runnable() {
		return all
	}
	lines := readings[cmd]
	if len(lines) == 0 {
		all = append(all, name)
	}
	missing := func(option string, has func(word string) bool) {
		isRead := slices.ContainsFunc(lines, func(line string) bool { return slices.ContainsFunc(strings.Fields(line), has) })
		if !isRead && notRead[name+" "+option] == "" {
			all = append(all, name+" "+option)
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden && notRead[name+" --"+f.Name] != "" || f.Hidden && f.Value.Type() == "bool" {
			return
		}
		if f.Name == "output" {
			for _, form := range formsOf(f.Usage) {
				if form != f.DefValue || name == "" {
					missing("-o "+form, func(word string) bool { return word == form || strings.HasPrefix(word, form+"=") })
				}
			}
			return
		}
		missing("--"+f.Name, func(word string) bool {
			return word == "--"+f.Name || strings.HasPrefix(word, "--"+f.Name+"=") || f.Shorthand != "" && word == "-"+f.Shorthand
		})
	})
	return all
}

// formsOf are the forms of output that the usage of a flag lists: "text, json or jsonpath='{}'; empty for a table".
func formsOf(usage string) (forms []string) {
	list, _, _ := strings.Cut(usage[strings.LastIndexByte(usage, ':')+1:], ";")
	for _, form := range strings.FieldsFunc(strings.ReplaceAll(list, " or ", ","), func(r rune) bool { return r == ',' || r == ' ' }) {
		form, _, _ = strings.Cut(form, "=")
		forms = append(forms, form)
	}
	return forms
}

// A command, an option and a form without a reading are found.
func TestUnread(t *testing.T) {
	root := &cobra.Command{Use: "operator"}
	one := &cobra.Command{Use: "one", Run: func(*cobra.Command, []string) {}}
	one.Flags().StringP("output", "o", "text", "How it is printed: text, json or jsonpath='{}'; empty for a table")
	one.Flags().BoolP("verbose", "v", false, "")
	one.Flags().String("of", "", "")
	two := &cobra.Command{Use: "two", Run: func(*cobra.Command, []string) {}}
	root.AddCommand(one, two)
	got := unread(root, map[*cobra.Command][]string{one: {"one -v", "one -o json"}})
	if want := []string{"one --of", "one -o jsonpath", "two"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// looksOf are the commands of a table with their words.
func looksOf(lines []string, words map[string]string, more ...string) (looks []look) {
	for _, line := range lines {
		args := strings.Fields(line)
		for i, arg := range args {
			args[i] = os.Expand(arg, func(name string) string { return words[name] })
		}
		looks = append(looks, look{Args: slices.Concat(args, more)})
	}
	return looks
}

// isJSON reports whether a command prints JSON, and isYAML whether YAML.
func (l look) isJSON() bool {
	return slices.Contains(l.Args, "--json") || slices.Contains(l.Args, "json") || l.Args[0] == "shell" && l.Args[1] == "db/dump" || l.Args[0] == "status" && l.Args[1] == "graph"
}

func (l look) isYAML() bool { return slices.Contains(l.Args, "yaml") || l.Args[0] == "rbac" }

// keepsItsForm checks that JSON is JSON, and YAML is YAML.
func (l look) keepsItsForm(t *testing.T) {
	t.Helper()
	var err error
	var value any
	switch {
	case l.isJSON():
		for values := json.NewDecoder(strings.NewReader(l.Stdout)); err == nil; {
			err = values.Decode(&value)
		}
	case l.isYAML():
		err = yaml.Unmarshal([]byte(l.Stdout), &value)
	}
	if err != nil && !errors.Is(err, io.EOF) || value == nil && (l.isJSON() || l.isYAML()) {
		t.Errorf("%q keeps no form: %v: %.500q", l.Args, err, l.Stdout)
	}
}

// reads reads what each command prints of the running operator, of etcd, and of remote clusters.
func (h *hostility) reads() {
	h.t.Helper()
	words := map[string]string{
		"API": h.served("api"), "OBJECT": h.keys[h.random.IntN(len(h.keys))], "NAMESPACE": attacker, "HOSTILE": hostile, "REMOTES": h.remotes,
		"ETCD": filepath.Join(h.t.TempDir(), "etcd"),
	}
	if err := os.WriteFile(words["ETCD"], []byte("endpoints: ["+h.etcd.Endpoints()[0]+"]"), 0o600); err != nil {
		h.t.Fatal(err)
	}
	with := map[string]bool{} // the commands with something that is escaped
	for _, l := range take(h.t, looksOf(readOfRunning, words, "--operator-sock-path="+h.o.socket)...) {
		if l.Args[0] != "troubleshoot" {
			l.succeeds(h.t)
		}
		l.isPrintable(h.t)
		l.keepsItsForm(h.t)
		with[strings.Join(l.Args[:2], " ")] = with[strings.Join(l.Args[:2], " ")] || printabletest.HasEscaped(l.Stdout)
	}
	for _, command := range []string{"status -v", "status --json", "status health", "shell db/dump", "shell health", "kvstore list", "troubleshoot clustermesh"} {
		if !with[command] {
			h.t.Errorf("%s prints nothing of hostile texts: the test shows nothing", command)
		}
	}
}

// parts are what the operator shows of its health.
func (h *hostility) parts() (parts []struct{ ID, Message string }) {
	h.t.Helper()
	_, text := h.get("unix", h.o.socket, "/health")
	if err := json.Unmarshal([]byte(text), &parts); err != nil {
		h.t.Fatalf("%v: %.500q", err, text)
	}
	return parts
}

// served is the address of a server of the operator.
func (h *hostility) served(name string) (address string) {
	h.t.Helper()
	h.o.until(name+" is served", func() bool {
		for _, p := range h.parts() {
			if p.ID == "health."+name {
				address, _ = strings.CutPrefix(p.Message, "serving at ")
			}
		}
		return address != ""
	})
	return address
}

// get reads a page of the operator.
func (h *hostility) get(network, address, path string) (code int, text string) {
	h.t.Helper()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}}
	resp, err := client.Get("http://operator" + path)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// pages are the pages of the servers of an operator, by the name of the server, and how they are asked for.
var pages = map[string][]string{
	"socket":  {"/status", "/health", "/graph", "/writes", "/explain?kind=Service&namespace=attacker&name=s", "/v1/metrics"},
	"api":     {"/healthz", "/healthz?verbose", "/v1/healthz", "/v1/metrics", "/v1/cluster", "/v1/docs", "/swagger.json", "/v1/livez", "/v1/readyz", "/v1/leader"},
	"metrics": {"/metrics"},
	"pprof":   {"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline"},
}

// pagesNotRead are pages that no test of texts reads, and why.
var pagesNotRead = map[string]string{
	"/debug/pprof/profile": "it is no text", "/debug/pprof/trace": "it is no text", "/debug/pprof/symbol": "it answers with names of functions",
}

// readsPages reads each page of the operator.
func (h *hostility) readsPages() {
	h.t.Helper()
	for server, paths := range pages {
		network, address := "unix", h.o.socket
		if server != "socket" {
			network, address = "tcp", h.served(server)
		}
		for _, path := range paths {
			code, text := h.get(network, address, path)
			what := "the page " + path + " of " + server
			text = strings.ReplaceAll(text, "\x00", "\n") // between the arguments of a process
			if server == "socket" && (path == "/status" || path == "/health") && !printabletest.HasEscaped(text) {
				h.t.Errorf("%s has nothing of hostile texts: the test shows nothing", what)
			}
			if printabletest.Check(h.t, what, text); code != http.StatusOK || text == "" {
				h.t.Errorf("%s: %d %.200q", what, code, text)
			}
			if strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
				look{Args: []string{path, "json"}, Stdout: text}.keepsItsForm(h.t)
			}
		}
	}
}

// K6 of the contract's tenants.md: a test reads each page that the program serves.
func TestEveryPageIsRead(t *testing.T) {
	found := pagesOfSource(t, "../../cells", "../../resources", "../../runtime")
	if len(found) < 15 {
		t.Errorf("the source has the pages %q only: the test shows nothing", found)
	}
	for _, page := range found {
		isRead := false
		for _, paths := range pages {
			isRead = isRead || slices.ContainsFunc(paths, func(p string) bool { path, _, _ := strings.Cut(p, "?"); return path == page })
		}
		if !isRead && pagesNotRead[page] == "" {
			t.Errorf("no test of texts reads the page %s: add it to pages, or to pagesNotRead why not", page)
		}
	}
}

// pagesOfSource are the paths in the source of folders at which programs serve HTTP: of routers, of pages of the local socket, and of other handlers.
func pagesOfSource(t *testing.T, folders ...string) (paths []string) {
	t.Helper()
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if strings.HasSuffix(d.Name(), "test") { // servers of tests
				return fs.SkipDir
			}
			paths = append(paths, pagesOfPackage(t, path)...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func pagesOfPackage(t *testing.T, folder string) (paths []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]ast.Expr{}
	var found []ast.Expr
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			found = append(found, pagesOf(n)...)
			if spec, is := n.(*ast.ValueSpec); is && len(spec.Values) == len(spec.Names) {
				for i, name := range spec.Names {
					constants[name.Name] = spec.Values[i]
				}
			}
			return true
		})
	}
	for _, e := range found {
		if name, is := e.(*ast.Ident); is {
			e = constants[name.Name]
		}
		literal, is := e.(*ast.BasicLit)
		if !is {
			continue // a path that another package gives
		}
		if path, err := strconv.Unquote(literal.Value); err == nil && strings.HasPrefix(path, "/") {
			paths = append(paths, path)
		}
	}
	return paths
}

// pagesOf are the paths of a node: keys of a Router, the Path of an Endpoint, and the first argument of HandleFunc or Handle.
func pagesOf(n ast.Node) (found []ast.Expr) {
	switch n := n.(type) {
	case *ast.CompositeLit:
		for _, e := range n.Elts {
			pair, is := e.(*ast.KeyValueExpr)
			switch name := bareName(n.Type); {
			case is && name == "Router":
				found = append(found, pair.Key)
			case is && name == "Endpoint" && fmt.Sprint(pair.Key) == "Path":
				found = append(found, pair.Value)
			}
		}
	case *ast.CallExpr:
		if name := bareName(n.Fun); (name == "HandleFunc" || name == "Handle") && len(n.Args) == 2 {
			found = append(found, n.Args[0])
		}
	}
	return found
}

// bareName is a name without that of its package or receiver.
func bareName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
