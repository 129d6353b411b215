// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/version"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/skep-operator/skep/runtime/waittest"
)

// fakePlugin is a credential plugin of a kubeconfig, that answers once it is let.
type fakePlugin struct {
	t   *testing.T
	dir string
}

func newFakePlugin(t *testing.T) *fakePlugin {
	return &fakePlugin{t, t.TempDir()} // its process ends with the folder
}

// kubeconfig names a server and the plugin.
func (p *fakePlugin) kubeconfig(server string) string {
	p.t.Helper()
	script := fmt.Sprintf("echo run >>%[1]s/runs\nwhile [ ! -s %[1]s/answer ]; do [ -d %[1]s ] || exit 1; sleep 0.01; done\ncat %[1]s/answer\n", p.dir)
	file := filepath.Join(p.dir, "credential-plugin")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		p.t.Fatal(err)
	}
	return save(p.t, &clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: server, InsecureSkipTLSVerify: strings.HasPrefix(server, "https")}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {Exec: &clientcmdapi.ExecConfig{
			Command: file, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	})
}

// allow has the plugin answer with a token, allowed with any credentials.
func (p *fakePlugin) allow(token string) { p.answer(map[string]string{"token": token}) }

func (p *fakePlugin) answer(credentials any) {
	p.t.Helper()
	text, err := json.Marshal(map[string]any{
		"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": credentials,
	})
	file := filepath.Join(p.dir, "answer")
	if err := errors.Join(err, os.WriteFile(file+".new", text, 0o600), os.Rename(file+".new", file)); err != nil {
		p.t.Error(err)
	}
}

// hang has the plugin answer nothing from now on.
func (p *fakePlugin) hang() {
	p.t.Helper()
	if err := os.Remove(filepath.Join(p.dir, "answer")); err != nil {
		p.t.Fatal(err)
	}
}

// runs is how often the plugin was run.
func (p *fakePlugin) runs() int {
	text, _ := os.ReadFile(filepath.Join(p.dir, "runs"))
	return strings.Count(string(text), "run")
}

// within makes a request that may take a time, and fails the test if it takes much
// longer.
func within(t *testing.T, d *guardedTransport, limit time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := newServer(d).Version(ctx)
		answered <- err
	}()
	select {
	case err := <-answered:
		return err
	case <-time.After(limit + 10*time.Second):
		t.Fatalf("no answer %s after the time of the request was over", 10*time.Second)
		return nil
	}
}

// A plugin that hangs holds no request up for longer than the request may take. It is
// run once for all of them, and what it says at last is used.
func TestACredentialPluginThatHangs(t *testing.T) {
	plugin := newFakePlugin(t)
	var token atomic.Pointer[string] // that the server takes
	good := "first"
	token.Store(&good)
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+*token.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		answer(w, version.Info{GitVersion: "v1.36.3"})
	}))
	t.Cleanup(api.Close)
	d := openTransport(t, through(plugin.kubeconfig(api.URL)))
	hangs := func() {
		t.Helper()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				err := within(t, d, 100*time.Millisecond)
				if err == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting for credentials") || !strings.Contains(err.Error(), "credential-plugin") {
					t.Errorf("a request while the plugin hangs: %v", err)
				}
			})
		}
		all.Wait()
	}
	hangs()
	until(t, "the plugin is run", func() bool { return plugin.runs() > 0 })
	if n := plugin.runs(); n != 1 {
		t.Errorf("the plugin was run %d times for 20 requests", n)
	}
	plugin.allow("first")
	until(t, "the plugin's token is used", func() bool { return within(t, d, time.Second) == nil })

	// The token expires, as the server sees it, and the plugin hangs again.
	plugin.hang()
	better := "second"
	token.Store(&better)
	if err := within(t, d, waittest.Limit); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("a token that is not valid any more: %v", err)
	}
	until(t, "the plugin is run for another token", func() bool { return plugin.runs() == 2 })
	hangs()
	plugin.allow("second")
	until(t, "the other token is used", func() bool { return within(t, d, time.Second) == nil })
	if n := plugin.runs(); n != 2 {
		t.Errorf("the plugin was run %d times for two tokens", n)
	}
}

// A plugin may give a client certificate in the place of a token.
func TestACertificateOfACredentialPlugin(t *testing.T) {
	plugin := newFakePlugin(t)
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 || r.Header.Get("Authorization") != "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		answer(w, version.Info{GitVersion: "v1.36.3"})
	}))
	api.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	api.StartTLS()
	t.Cleanup(api.Close)
	d := openTransport(t, through(plugin.kubeconfig(api.URL)))
	if err := within(t, d, 100*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request while the plugin hangs: %v", err)
	}
	cert, key := certificate(t, -time.Hour, time.Hour)
	plugin.answer(map[string]string{"clientCertificateData": string(cert), "clientKeyData": string(key)})
	until(t, "the plugin's certificate is used", func() bool { return within(t, d, time.Second) == nil })
}

// A plugin that fails says why.
func TestACredentialPluginThatFails(t *testing.T) {
	plugin := newFakePlugin(t)
	path := plugin.kubeconfig("https://192.0.2.1")
	if err := os.WriteFile(filepath.Join(plugin.dir, "credential-plugin"), []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := within(t, openTransport(t, through(path)), 10*time.Second)
	if err == nil || !strings.Contains(err.Error(), "exit code 3") || !strings.Contains(err.Error(), "credential-plugin") {
		t.Errorf("%v", err)
	}
}
