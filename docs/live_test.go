// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package docs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/graph/render"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

// TestLive keeps those blocks true that show a running operator: three nodes, of
// which one has a CIDR of another cluster, and a role without one permission.
//
//	go test ./docs -run TestLive -update
func TestLive(t *testing.T) {
	s := newSite(t)
	l := s.runLive()
	for _, path := range documents(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			rewriteFile(t, path, func(b block) (string, error) {
				switch {
				case b.directive == "live timeline":
					return keep(b.text, l.timeline()), nil
				case b.directive == "live":
					return l.session(b.text), nil
				}
				return b.text, nil
			})
		})
	}
}

// live is an operator that runs in a process of its own, with what documents call
// it by.
type live struct {
	*shell
	names *strings.Replacer // what differs from run to run
}

func (s *site) runLive() *live {
	t := s.t
	s.define()
	s.addNode("worker-1", nil, map[string]any{})
	s.addNode("worker-2", nil, map[string]any{})
	s.addNode("worker-3", nil, map[string]any{"ipam": map[string]any{"podCIDRs": []any{"192.168.7.0/24"}}})
	namespace, socket, api := s.namespace(), socketPath(t), fmt.Sprint("127.0.0.1:", clustertest.FreePort(t))
	s.bindRole("docs-live", "ciliumnodes/status")
	sh := newShell(t,
		asOperator+"=two",
		"CILIUM_K8S_KUBECONFIG_PATH="+s.UserKubeconfig(t, "docs-live"), "CILIUM_K8S_NAMESPACE="+namespace,
		"CILIUM_OPERATOR_SOCK_PATH="+socket, "CILIUM_OPERATOR_API_SERVE_ADDR="+api, "CILIUM_ENABLE_GOPS=false",
		"CILIUM_ENABLE_METRICS=true", "CILIUM_OPERATOR_PROMETHEUS_SERVE_ADDR=127.0.0.1:0",
		"CILIUM_ENABLE_IPV6=false", "CILIUM_CLUSTER_POOL_IPV4_CIDR=10.4.0.0/16")
	log := &logtest.Buffer{}
	cmd := sh.command(context.Background(), "exec operator")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the operator ended with %v:\n%s", err, log)
		}
	})
	until(t, "nodes have pod CIDRs", func() bool {
		return s.field("worker-1", "spec", "ipam", "podCIDRs") != "" && s.field("worker-2", "spec", "ipam", "podCIDRs") != ""
	})
	log.Wait(t, "the role lacks a permission", "ciliumnodes/status") // it is felt
	var screen string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the operator:\n%s\n%s", screen, log)
		}
	})
	until(t, "its picture stands still", func() bool {
		screen = sh.run("operator status")
		return strings.Contains(screen, "  synced  ") && strings.Contains(screen, "permissions: the role lacks") && strings.Contains(screen, "loop-allocate")
	})
	return &live{sh, strings.NewReplacer(s.holder(namespace), "operator-7d4b9-vxk2pdmzq4", namespace, "kube-system", socket, "/var/run/cilium/operator.sock",
		api, "localhost:9234", s.AdminConfig(t).Host, "https://10.96.0.1:443", "docs-live", "cilium-operator")}
}

// bindRole gives a user the least role of an operator, but for one resource.
func (s *site) bindRole(user, without string) {
	s.t.Helper()
	role := k8s.LeastRole(user, selected(s.t).Graph(), true)
	for i := range role.Rules {
		role.Rules[i].Resources = slices.DeleteFunc(role.Rules[i].Resources, func(r string) bool { return r == without })
	}
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return len(r.Resources)+len(r.NonResourceURLs) == 0 })
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	_, err := s.core.RbacV1().ClusterRoles().Create(s.t.Context(), role, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		_, err = s.core.RbacV1().ClusterRoleBindings().Create(s.t.Context(), binding, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
	clustertest.AwaitAllowed(s.t, s.core, user, role.Rules)
}

// session runs the command lines of a block against the running operator.
func (l *live) session(text string) string {
	var out strings.Builder
	for part := range strings.SplitSeq("\n"+text, "\n$ ") {
		command, printed, _ := strings.Cut(part, "\n")
		if command == "" {
			continue
		}
		real := strings.ReplaceAll(command, "localhost:9234", "$CILIUM_OPERATOR_API_SERVE_ADDR")
		out.WriteString("$ " + command + "\n" + keep(strings.TrimSuffix(printed, "\n")+"\n", l.names.Replace(l.run(real))))
	}
	return out.String()
}

// timeline is how the start of the running operator went.
func (l *live) timeline() string {
	l.t.Helper()
	g, err := graph.Read(strings.NewReader(l.run("operator status graph")))
	if err != nil {
		l.t.Fatal(err)
	}
	var out bytes.Buffer
	if err := render.WriteTimeline(&out, g); err != nil {
		l.t.Fatal(err)
	}
	process, _, _ := strings.Cut(out.String(), "slowest constructors")
	return tidy(strings.TrimSpace(process) + "\n")
}

var (
	amounts = regexp.MustCompile(`\b[0-9]{4}-[0-9T:-]+Z|\b[0-9]+(\.[0-9]+)?(µs|ns|ms|s|m[0-9]+s|h[0-9]+m[0-9]+s)?\b`)
	gaps    = regexp.MustCompile(`[ ░▓]+`)
)

// keep returns the old text where the new one differs in numbers, times, columns
// and repeated lines alone. Otherwise it is the new text, with those old lines
// that are as good.
func keep(old, got string) string {
	same := func(line string) string { return gaps.ReplaceAllString(amounts.ReplaceAllString(line, "N"), " ") }
	essence := func(text string) []string {
		lines := strings.Split(text, "\n")
		for i := range lines {
			lines[i] = same(lines[i])
		}
		return slices.Compact(lines)
	}
	if slices.Equal(essence(old), essence(got)) {
		return old
	}
	before, now := strings.Split(old, "\n"), strings.Split(got, "\n")
	for i := range now {
		if i < len(before) && same(before[i]) == same(now[i]) {
			now[i] = before[i]
		}
	}
	return strings.Join(now, "\n")
}
