// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/skep-operator/skep/runtime/waittest"
)

var apiAddress = regexp.MustCompile(`msg=serving address="([^"]+)" server=api`)

// A credential plugin of the kubeconfig that hangs shows in health, holds up neither
// the health endpoint nor the end of the process.
func TestACredentialPluginThatHangs(t *testing.T) {
	dir := t.TempDir()
	plugin, goOn := filepath.Join(dir, "credential-plugin"), filepath.Join(dir, "go-on")
	script := fmt.Sprintf("#!/bin/sh\nexec 2>/dev/null # it outlives the operator, whose output is waited for\nwhile [ ! -e %s ] && [ -d %s ]; do sleep 0.05; done\nexit 1\n", goOn, dir)
	if err := os.WriteFile(plugin, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(goOn, nil, 0o600) })
	kubeconfig := filepath.Join(dir, "kubeconfig")
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: "https://127.0.0.1:1"}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {Exec: &clientcmdapi.ExecConfig{
			Command: plugin, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}
	if err := clientcmd.WriteToFile(config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	o := start(t, kubeconfig, nil, "--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8")
	o.until("health says so", func() bool {
		s, ok := o.status()
		return ok && strings.Contains(s.degraded(), `waiting for credentials of the exec plugin "`+plugin)
	})
	address := apiAddress.FindStringSubmatch(o.log.String())
	if address == nil {
		t.Fatal("the log has no address of the health API")
	}
	client := http.Client{Timeout: 10 * time.Second}
	o.until("/healthz says so, too", func() bool {
		resp, err := client.Get("http://" + address[1] + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusInternalServerError {
			t.Errorf("/healthz answers %s %q", resp.Status, text)
		}
		return strings.Contains(string(text), "waiting for credentials")
	})
	meter := waittest.StartMeter()
	defer meter.Stop()
	if code := o.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := meter.Elapsed(); took > 20*time.Second { // a hook that hangs is given up after a minute
		t.Errorf("it stops after %s", took)
	}
}
