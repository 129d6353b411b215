// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/hive"
)

var explainCommand command.Contribution = func(h *hive.Hive) *cobra.Command {
	var namespace string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain KIND/NAME",
		Short: "Say why the running operator wrote an object, or did not",
		Long: "Say why the running operator wrote an object, or did not: its last writes with what set them off, and " +
			"the last decision of each rule about it. What is told is of the operator on this machine, since it started.",
		Example: "  operator explain CiliumNode/worker-1\n  operator explain ciliumendpoint/web-0 -n shop",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, name, ok := strings.Cut(args[0], "/")
			if !ok || kind == "" || name == "" {
				return fmt.Errorf("%q is not of the form KIND/NAME, such as CiliumNode/worker-1", args[0])
			}
			var x Explanation
			q := url.Values{"kind": {kind}, "namespace": {namespace}, "name": {name}}
			if err := command.AskJSON(cmd, h, "/explain?"+q.Encode(), &x); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(x)
			}
			if len(x.Writes)+len(x.Decisions) > 0 {
				return x.WriteText(cmd.OutOrStdout())
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Nothing is remembered of %s %s.\n", kind, joined(namespace, name))
			return sayWhoLeads(cmd, h)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "Namespace of the object")
	cmd.Flags().BoolVar(&asJSON, "json", false, "Print JSON")
	return cmd
}

// sayWhoLeads points to the replica that knows more.
func sayWhoLeads(cmd *cobra.Command, h *hive.Hive) error {
	var status struct {
		Election *struct {
			Leading bool
			Holder  string
		}
	}
	if err := command.AskJSON(cmd, h, "/status", &status); err != nil {
		return err
	}
	if e := status.Election; e != nil && !e.Leading && e.Holder != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "This replica stands by; %s leads: ask there.\n", e.Holder)
	}
	return nil
}

var writesCommand command.Contribution = func(h *hive.Hive) *cobra.Command {
	var follow, asJSON bool
	cmd := &cobra.Command{
		Use:   "writes",
		Short: "Show the last writes of the running operator, with their causes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := "/writes"
			if follow {
				path += "?follow=true"
			}
			resp, err := command.Ask(cmd, h, path)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if asJSON {
				_, err := io.Copy(cmd.OutOrStdout(), resp.Body)
				return err
			}
			return copyWrites(cmd.OutOrStdout(), resp.Body)
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
		if _, err := fmt.Fprintln(w, write); err != nil {
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

// WriteText writes the explanation for a terminal.
func (x Explanation) WriteText(w io.Writer) error {
	var b strings.Builder
	if len(x.Writes) > 0 {
		b.WriteString("Writes:\n")
		for _, write := range x.Writes {
			fmt.Fprintf(&b, "  %s\n", write)
		}
	}
	if len(x.Decisions) > 0 {
		b.WriteString("Last decisions:\n")
		for _, d := range x.Decisions {
			fmt.Fprintf(&b, "  %s  %s, %s: %s%s\n", d.At.Format(time.RFC3339), d.Rule, d.Key, d.Outcome, because(d.Triggers))
		}
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
