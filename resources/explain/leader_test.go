// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package explain

import "testing"

func TestLeaderCommand(t *testing.T) {
	pod := map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
	onNode := func(name string) map[string]string {
		return map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1", "K8S_NODE_NAME": name}
	}
	selecting := func(node string) string {
		return `kubectl -n kube-system exec "$(kubectl -n kube-system get pods -l io.cilium/app=operator --field-selector spec.nodeName=` +
			node + ` -o name)" -- operator writes`
	}
	for _, test := range []struct {
		name, own, holder string
		env               map[string]string
		args              []string
		want              string
	}{
		{"this replica leads", "a-1234567890", "", pod, nil, ""},
		{"nobody is known to lead", "a-1234567890", "?", pod, nil, ""},
		{"pods of their own network", "operator-7d4-a-1234567890", "operator-7d4-b-abcdefghij", pod, []string{"explain", "Pod/shop/web"},
			"kubectl -n kube-system exec operator-7d4-b -- operator explain Pod/shop/web"},
		{"and their node's name", "operator-7d4-a-1234567890", "operator-7d4-b-abcdefghij", onNode("node-1"), []string{"writes"},
			"kubectl -n kube-system exec operator-7d4-b -- operator writes"},
		{"the network of nodes", "node-1-1234567890", "node-2-abcdefghij", onNode("node-1"), []string{"writes"}, selecting("node-2")},
		{"nodes with a domain", "node-1-1234567890", "node-2-abcdefghij", onNode("node-1.example.org"), []string{"writes"}, selecting("node-2.example.org")},
		{"no pods", "a-1234567890", "b-1234567890", nil, []string{"writes"}, "on host b: operator writes"},
		{"words that a shell would change", "a-1234567890", "b-1234567890", pod, []string{"explain", "Pod/it's me", ""},
			`kubectl -n kube-system exec b -- operator explain 'Pod/it'\''s me' ''`},
	} {
		e := Election{Lease: "kube-system/lock", Identity: test.own, Holder: test.holder}
		if e.Leading = test.holder == ""; test.holder == "?" {
			e.Holder = ""
		}
		got := e.leaderCommand(append([]string{"operator"}, test.args...), func(key string) string { return test.env[key] })
		if got != test.want {
			t.Errorf("%s:\n%s, want\n%s", test.name, got, test.want)
		}
	}
}
