// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/printable/printabletest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// notInStrings are characters that Go does not escape in JSON, and that a terminal may act on.
const notInStrings = "\u007f\u009b31m\U000e0041"

// K6 of the contract's tenants.md, for files: neither names nor contents of the files of the ConfigMap, of a kubeconfig, of the client configuration of
// etcd, of TLS, or of the directory of remote clusters control the terminal, or look like a line of ours, whatever command reads them.
func TestTextsOfFilesAreEscaped(t *testing.T) {
	folder, config := t.TempDir(), t.TempDir()
	quoted, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) string {
		t.Helper()
		if !filepath.IsAbs(name) {
			name = filepath.Join(folder, name)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	remotes := filepath.Join(folder, "remotes")
	if err := os.Mkdir(remotes, 0o700); err != nil {
		t.Fatal(err)
	}
	for i, content := range []string{"endpoints: [" + string(quoted) + "]", "endpoints: [" + hostile, "endpoints: " + string(quoted)} {
		write(fmt.Sprintf("remotes/r%d", i), content)
	}
	write("remotes/"+hostile, "endpoints: []")
	odd := write(hostile, hostile)
	etcd := write("etcd", fmt.Sprintf("endpoints: [%s]\ntrusted-ca-file: %q\ncert-file: %[2]q\nkey-file: %[2]q\n", quoted, odd))
	kubeconfig := write("kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":%[1]s,"contexts":[{"name":%[1]s,"context":{"cluster":%[1]s,"user":%[1]s}}],
		"clusters":[{"name":%[1]s,"cluster":{"server":%[1]s,"certificate-authority":%[1]s}}],"users":[{"name":%[1]s,"user":{"client-certificate":%[1]s,"client-key":%[1]s}}]}`, quoted))
	yaml := write("options.yaml", "cluster-name: "+string(quoted)+"\n"+string(quoted)+": "+string(quoted)+"\ncluster-id: "+string(quoted)+"\n")
	broken := write("broken.yaml", "cluster-name: ["+hostile+"\n\t- {")
	for name, content := range map[string]string{
		"cluster-name": hostile + notInStrings, "cluster-id": hostile, "debug": hostile, "log-opt": hostile, "kvstore-opt": hostile, "ipam": hostile,
		"cluster-pool-ipv4-cidr": hostile, "ces-max-ciliumendpoints-per-ces": hostile, "operator-api-serve-addr": hostile, "nodes-gc-interval": hostile,
		"agent-option": hostile + notInStrings, "de\x1bbug": "x", hostile: hostile, "clustermesh-config": hostile, "gateway-api-hostnetwork-nodelabelselector": hostile,
	} {
		write(filepath.Join(config, name), content)
	}
	if err := os.Symlink(config+"/none", filepath.Join(config, "gone"+hostile)); err != nil {
		t.Fatal(err)
	}
	in := "--config-dir=" + config
	for _, args := range [][]string{
		{in}, {"status", in}, {"metrics", "list", in}, {"shell", "health", in}, {"explain", "Service/a/b", in}, {"writes", in},
		{"--config=" + yaml}, {"validate", "--config=" + yaml}, {"config", "--config=" + yaml}, {"validate", "--config=" + broken}, {"config", "--config=" + broken},
		{"validate", "--build", "--k8s-kubeconfig-path=" + kubeconfig}, {"--k8s-kubeconfig-path=" + kubeconfig}, {"--k8s-kubeconfig-path=" + odd},
		{"troubleshoot", "kvstore", "--etcd-config=" + etcd}, {"troubleshoot", "kvstore", "--etcd-config=" + odd}, {"kvstore", "list", "--etcd-config=" + etcd},
		{"troubleshoot", "clustermesh", "--clustermesh-config=" + remotes},
		{"validate", "--config-dir=" + odd}, {"validate", "--cluster-name=" + hostile}, {hostile}, {"--" + hostile},
	} {
		stdout, stderr := outputOf(t, args...)
		what := strings.Join(args, " ")
		printabletest.Check(t, "the output of "+what, stdout)
		printabletest.Check(t, "the errors of "+what, stderr)
	}
	for _, l := range take(t, looksOf(readOfFiles, map[string]string{"HOSTILE": hostile}, in)...) {
		l.isPrintable(t)
		l.keepsItsForm(t)
	}
	stdout, stderr := outputOf(t, "config", in)
	printabletest.CheckContains(t, "config", stdout)
	printabletest.CheckContains(t, "the errors of config", stderr)
	for _, args := range [][]string{{"config", "-o", "json", in}, {"config", "--unknown", "-o", "json", in}} {
		if stdout, _ := outputOf(t, args...); !json.Valid([]byte(stdout)) || !strings.Contains(stdout, `\u007f\u009b31m\udb40\udc41`) {
			t.Errorf("%v is no JSON, or lacks a text: %.500q", args, stdout)
		}
	}
}

// outputOf is what a command prints, whatever its exit code is. One that goes on is ended.
func outputOf(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Limit/4)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = operatorEnv()
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return out.String(), errs.String()
}
