// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds_test

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/dynamic"

	"github.com/skep-operator/skep/resources/agents/agenttest"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

// CRD-1; numbers 14 and 15 of the contract's crds.md: on an empty cluster, what agents of a release wait for and list is there, with the
// options of their ConfigMap.
func TestAgentsOfEachReleaseAreReady(t *testing.T) {
	features := map[string]string{
		"enable-bgp-control-plane": "true", "enable-envoy-config": "true", "enable-cilium-endpoint-slice": "true", "enable-egress-gateway": "true",
		"enable-local-redirect-policy": "true", "enable-datapath-plugins": "true", "enable-gateway-api": "true",
	}
	for of, steps := range map[string][]map[string]string{
		"1.17": {{}, features},
		"1.18": {{}, {"enable-ipv4-egress-gateway": "true"}, features},
		"1.19": {{"disable-endpoint-crd": "true", "enable-cilium-clusterwide-network-policy": "false"}, features},
		"1.20": {{}, features},
	} {
		t.Run(of, func(t *testing.T) {
			w := newWorld(t)
			admin := clustertest.Shared(t).AdminConfig(t)
			client, err := dynamic.NewForConfigAndClient(admin, operatortest.HTTPClient(t, admin))
			if err != nil {
				t.Fatal(err)
			}
			for _, config := range steps {
				w.isReady(client, agenttest.Agent{Release: of, Config: config})
			}
		})
	}
}

// isReady checks that an agent is not ready before the operator has run with its options, and is then.
func (w *world) isReady(client dynamic.Interface, agent agenttest.Agent) {
	w.t.Helper()
	if missing, err := agent.Missing(w.t.Context(), client); err != nil || len(missing) == 0 {
		w.t.Fatalf("with %v, before the operator runs: it lacks %q, %v", agent.Config, missing, err)
	}
	dir := w.t.TempDir()
	for key, value := range agent.Config {
		if err := os.WriteFile(filepath.Join(dir, key), []byte(value), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	o := start(w.t, w.proxy.Kubeconfig(), "--config-dir="+dir, "--cilium-release="+agent.Release)
	operatortest.Eventually(w.t, "the agent is ready", func() bool {
		missing, err := agent.Missing(w.t.Context(), client)
		return err == nil && len(missing) == 0
	})
	o.Stop()
}
