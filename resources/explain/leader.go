// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package explain

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/hive"
)

// OnStandby is the exit code of a command that only the leader can answer in full, run
// on a replica that does not lead.
const OnStandby = 4

// Election is what a replica knows of the leader election.
type Election struct {
	Lease    string // namespace/name
	Identity string // of this replica
	Holder   string // of the leader, "" while unknown
	Leading  bool
}

// LeaderCommand is the command line that repeats this process' command at the leader, ""
// where this replica leads or no leader is known. A replica serves its commands on a
// local socket alone, so it cannot be reached without the permissions of who asks.
func (e Election) LeaderCommand() string {
	args := append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...)
	return e.leaderCommand(args, os.Getenv)
}

func (e Election) leaderCommand(args []string, env func(string) string) string {
	if e.Leading || e.Holder == "" {
		return ""
	}
	line, leader, own := shellLine(args), host(e.Holder), host(e.Identity)
	if env("KUBERNETES_SERVICE_HOST") == "" {
		return fmt.Sprintf("on host %s: %s", leader, line)
	}
	namespace, _, _ := strings.Cut(e.Lease, "/")
	exec := "kubectl -n " + shellWord(namespace) + " exec "
	// With hostNetwork the host of an identity is the node's, whose name may have a domain.
	if node := env("K8S_NODE_NAME"); own != "" && (node == own || strings.HasPrefix(node, own+".")) {
		return fmt.Sprintf(`%s"$(kubectl -n %s get pods -l io.cilium/app=operator --field-selector spec.nodeName=%s -o name)" -- %s`,
			exec, shellWord(namespace), shellWord(leader+node[len(own):]), line)
	}
	return exec + shellWord(leader) + " -- " + line
}

// host is the part of an identity before its random end.
func host(identity string) string {
	if i := strings.LastIndexByte(identity, '-'); i > 0 {
		return identity[:i]
	}
	return identity
}

// plainWord is what a shell does not change.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func shellLine(args []string) string {
	words := slices.Clone(args)
	for i, w := range words {
		words[i] = shellWord(w)
	}
	return strings.Join(words, " ")
}

// election asks the running operator who leads. Where there is no election it leads.
func election(cmd *cobra.Command, h *hive.Hive) (Election, error) {
	var status struct{ Election *Election }
	if err := command.GetJSON(cmd, h, "/status", &status); err != nil {
		return Election{}, err
	}
	if status.Election == nil {
		return Election{Leading: true}, nil
	}
	return *status.Election, nil
}

// referToLeader ends a command whose answer is the leader's: on a standby it prints the
// command that reaches the leader, and the error carries OnStandby.
func referToLeader(cmd *cobra.Command, e Election, asJSON bool) error {
	if e.Leading {
		return nil
	}
	out := cmd.OutOrStdout()
	if asJSON {
		out = cmd.ErrOrStderr()
	}
	if e.Holder == "" {
		fmt.Fprintf(out, "This replica stands by, and no leader is known; lease %s\n", e.Lease)
	} else {
		fmt.Fprintf(out, "This replica stands by; %s leads: ask there:\n  %s\n", e.Holder, e.LeaderCommand())
	}
	return command.Exit(OnStandby)
}
