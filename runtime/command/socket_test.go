// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/hive"
)

type socketConfig struct{ OperatorSockPath string }

func (c socketConfig) Flags(fs *pflag.FlagSet) {
	fs.String("operator-sock-path", c.OperatorSockPath, "Socket")
}

// asking is a module whose command prints what a running operator says.
func asking(path string) cell.Cell {
	var ask command.Subcommand = func(h *hive.Hive) *cobra.Command {
		return &cobra.Command{Use: "ask", RunE: func(cmd *cobra.Command, _ []string) error {
			var said string
			if err := command.GetJSON(cmd, h, path, &said); err != nil {
				return err
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), said)
			return err
		}}
	}
	return cell.Module("asking", "Asks", cell.Config(socketConfig{}), cell.Annotate(ask))
}

func TestAsk(t *testing.T) {
	dir, err := os.MkdirTemp("", "skep") // the paths of sockets are limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `"hello"`) })
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `"hel`) })
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	missing := filepath.Join(dir, "none")
	for _, test := range []struct{ path, socket, out, err string }{
		{"/hello", socket, "hello", ""},
		{"/later", socket, "", "the operator at " + socket + " answers 404 Not Found to /later; is it of another version?"},
		{"/broken", socket, "", "reading the answer of the running operator: unexpected EOF"},
		{"/hello", missing, "", "no operator is running here: there is no socket " + missing + " (--operator-sock-path)"},
	} {
		var out bytes.Buffer
		root := command.New("operator", cell.Set(asking(test.path)))
		root.SetArgs([]string{"ask", "--operator-sock-path=" + test.socket})
		root.SetOut(&out)
		root.SetErr(&out)
		err := root.ExecuteContext(t.Context())
		if test.err == "" && (err != nil || out.String() != test.out) || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%s at %s: %q, %v", test.path, test.socket, out.String(), err)
		}
	}
}
