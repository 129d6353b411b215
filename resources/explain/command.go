// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/printable"
)

var explainCommand command.Subcommand = func(h *hive.Hive) *cobra.Command {
	var namespace string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain KIND/[NAMESPACE/]NAME",
		Short: "Say why the running operator wrote an object, or did not",
		Long: "Say why the running operator wrote an object, or did not: its last writes with what set them off, and " +
			"the last decision of each rule about it. What is told is of the operator on this machine, since it started. " +
			"On a standby it prints the command that asks the leader, and exits with 4.",
		Example: "  operator explain CiliumNode/worker-1\n  operator explain ciliumendpoint/shop/web-0",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, namespace, name, err := parseObject(args[0], namespace)
			if err != nil {
				return err
			}
			var x Explanation
			q := url.Values{"kind": {kind}, "namespace": {namespace}, "name": {name}}
			if err := command.GetJSON(cmd, h, "/explain?"+q.Encode(), &x); err != nil {
				return err
			}
			e, err := election(cmd, h)
			if err != nil {
				return err
			}
			print := func(w io.Writer) error { return x.print(w, kind, namespace, name) }
			if asJSON {
				print = func(w io.Writer) error { return json.NewEncoder(w).Encode(x) }
			}
			if err := print(cmd.OutOrStdout()); err != nil {
				return err
			}
			return referToLeader(cmd, e, asJSON)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "Namespace of the object")
	cmd.Flags().BoolVar(&asJSON, "json", false, "Print JSON")
	return cmd
}

// parseObject takes KIND/NAME or KIND/NAMESPACE/NAME apart. The namespace may be given beside it.
func parseObject(text, beside string) (kind, namespace, name string, err error) {
	parts := strings.Split(text, "/")
	if len(parts) == 2 {
		parts = []string{parts[0], beside, parts[1]}
	}
	switch {
	case len(parts) != 3 || parts[0] == "" || parts[2] == "" || parts[1] == "" && strings.Count(text, "/") == 2:
		return "", "", "", fmt.Errorf("%q is not of the form KIND/NAME or KIND/NAMESPACE/NAME, such as CiliumNode/worker-1 or Pod/shop/web-0", text)
	case beside != "" && parts[1] != beside:
		return "", "", "", fmt.Errorf("%q names another namespace than --namespace=%s", text, beside)
	}
	return parts[0], parts[1], parts[2], nil
}

var writesCommand command.Subcommand = func(h *hive.Hive) *cobra.Command {
	var follow, asJSON bool
	cmd := &cobra.Command{
		Use:   "writes",
		Short: "Show the last writes of the running operator, with their causes",
		Long: "Show the last writes of the running operator, with their causes. On a standby it prints the command that asks " +
			"the leader, and exits with 4; with --follow it goes on, for the standby may lead next.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := election(cmd, h)
			if err != nil {
				return err
			}
			path := "/writes"
			if follow {
				path += "?follow=true"
			}
			resp, err := command.Get(cmd, h, path)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if follow {
				_ = referToLeader(cmd, e, true) // this replica may lead next
				e.Leading = true
			}
			write := copyWrites
			if asJSON {
				write = func(w io.Writer, lines io.Reader) error { _, err := io.Copy(w, lines); return err }
			}
			if err := write(cmd.OutOrStdout(), resp.Body); err != nil {
				return err
			}
			return referToLeader(cmd, e, asJSON)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "Go on with writes as they are made")
	cmd.Flags().BoolVar(&asJSON, "json", false, "Print JSON, a line each")
	return cmd
}

func copyWrites(w io.Writer, lines io.Reader) error {
	for dec := json.NewDecoder(lines); ; {
		var write Write
		if err := dec.Decode(&write); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("the running operator broke off: %w", err)
		}
		if _, err := fmt.Fprintln(w, printable.Line(write.String())); err != nil {
			return err
		}
	}
}

// String is one line: when, what, what came of it, and why.
func (w Write) String() string {
	what := w.Resource + " " + joined(w.Namespace, w.Name)
	if w.Subresource != "" {
		what += " (" + w.Subresource + ")"
	}
	at := ""
	if w.Revision != "" {
		at = " at " + w.Revision
	}
	cause := w.Module + " (no cause)"
	if w.Cause != nil {
		cause = w.Cause.String()
	}
	return fmt.Sprintf("%s  %s %s: %s%s; %s", w.At.Format(time.RFC3339), w.Verb, what, w.Result, at, cause)
}

// print writes the explanation of an object for a terminal, also where there is none.
func (x Explanation) print(w io.Writer, kind, namespace, name string) error {
	if len(x.Writes)+len(x.Decisions)+len(x.Events) > 0 {
		return x.WriteText(w)
	}
	text := printable.Line(fmt.Sprintf("Nothing is remembered of %s %s.", kind, joined(namespace, name))) + "\n"
	for _, other := range x.Namespaces {
		text += printable.Line(fmt.Sprintf("There is one in the namespace %s: explain %s/%s/%s", other, kind, other, name)) + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

// SeeTroubleshooting is the last line of answers with something that is not as it should be.
const SeeTroubleshooting = "See docs/troubleshooting.md for what this means, and what to do."

// WriteText writes the explanation for a terminal.
func (x Explanation) WriteText(w io.Writer) error {
	var b strings.Builder
	if len(x.Writes) > 0 {
		b.WriteString("Writes:\n")
		for _, write := range x.Writes {
			fmt.Fprintf(&b, "  %s\n", printable.Line(write.String()))
		}
	}
	if len(x.Decisions) > 0 {
		b.WriteString("Last decisions:\n")
		for _, d := range x.Decisions {
			fmt.Fprintf(&b, "  %s  %s\n", d.At.Format(time.RFC3339), printable.Line(fmt.Sprintf("%s, %s: %s%s", d.Rule, d.Key, d.Outcome, because(d.Triggers))))
		}
	}
	if len(x.Events) > 0 {
		b.WriteString("Events:\n")
		for _, e := range x.Events {
			fmt.Fprintf(&b, "  %s  %s\n", e.At.Format(time.RFC3339), printable.Line(fmt.Sprintf("%s: %s: %s", e.Module, e.Reason, e.Message)))
		}
	}
	if slices.ContainsFunc(x.Decisions, func(d Decision) bool { return d.Outcome != wrote && d.Outcome != equal }) {
		b.WriteString(SeeTroubleshooting + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func because(triggers []Trigger) string {
	if len(triggers) == 0 {
		return ""
	}
	texts := make([]string, len(triggers))
	for i, t := range triggers {
		texts[i] = t.String()
	}
	return "; set off by " + strings.Join(texts, ", ")
}
