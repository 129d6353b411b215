// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/waittest"
)

// client is a program that is started with the variables that a served cloud prints.
type client struct {
	t     *testing.T
	env   map[string]string
	http  *http.Client
	token string
}

// start serves a cloud until the test ends.
func start(t *testing.T, args ...string) *client {
	t.Helper()
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		err := Serve(ctx, writer, append([]string{"-listen=127.0.0.1:0"}, args...))
		writer.CloseWithError(err)
		ended <- err
	}()
	c := &client{t: t, env: map[string]string{}}
	for range 9 {
		var variable string
		if _, err := fmt.Fscanf(reader, "export %s\n", &variable); err != nil {
			t.Fatal(err)
		}
		name, value, _ := strings.Cut(variable, "=")
		c.env[name] = value
	}
	proxy, err := url.Parse(c.env["HTTPS_PROXY"])
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(c.env["SSL_CERT_FILE"])
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	transport := &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: trusted}}
	c.http = &http.Client{Transport: transport}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
		if _, err := os.Stat(c.env["SSL_CERT_FILE"]); !os.IsNotExist(err) {
			t.Errorf("the certificate is left: %v", err)
		}
	})
	return c
}

// call returns the status and the JSON of an answer.
func (c *client) call(method, address string, body io.Reader, header http.Header) (status int, out map[string]any) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, address, body)
	if err != nil {
		c.t.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		c.t.Fatalf("%s %s: %s: %q", method, address, resp.Status, text)
	}
	return resp.StatusCode, out
}

// logIn gets a token for the client of the variables.
func (c *client) logIn() {
	c.t.Helper()
	form := url.Values{
		"grant_type": {"client_credentials"}, "scope": {"https://management.azure.com/.default"},
		"client_id": {c.env["AZURE_CLIENT_ID"]}, "client_secret": {c.env["AZURE_CLIENT_SECRET"]},
	}
	status, out := c.call(http.MethodPost, "https://login.microsoftonline.com/"+c.env["AZURE_TENANT_ID"]+"/oauth2/v2.0/token",
		strings.NewReader(form.Encode()), http.Header{"Content-Type": {"application/x-www-form-urlencoded"}})
	if c.token, _ = out["access_token"].(string); status != http.StatusOK || c.token == "" {
		c.t.Fatalf("there is no token: %d %v", status, out)
	}
}

func (c *client) resource(path string) string {
	return "https://management.azure.com/subscriptions/" + c.env["AZURE_SUBSCRIPTION_ID"] + "/resourceGroups/" + c.env["AZURE_RESOURCE_GROUP"] +
		"/providers/" + path + "?api-version=2025-04-01"
}

// A client that knows the variables alone reads a machine, gives it an address, and sees it.
func TestServe(t *testing.T) {
	c := start(t, "-machines=2", "-scale-set=nodes")
	machine := c.resource("Microsoft.Compute/virtualMachineScaleSets/nodes/virtualMachines/1")
	if status, out := c.call(http.MethodGet, machine, nil, nil); status != http.StatusUnauthorized {
		t.Errorf("without a token the answer is %d %v", status, out)
	}
	c.logIn()
	status, model := c.call(http.MethodGet, machine, nil, nil)
	if status != http.StatusOK {
		t.Fatalf("%d %v", status, model)
	}
	profile := model["properties"].(map[string]any)["networkProfileConfiguration"].(map[string]any)
	nic := profile["networkInterfaceConfigurations"].([]any)[0].(map[string]any)["properties"].(map[string]any)
	configs := nic["ipConfigurations"].([]any)
	more, _ := json.Marshal(configs[0])
	var second map[string]any
	_ = json.Unmarshal(more, &second)
	second["name"] = "second"
	second["properties"].(map[string]any)["primary"] = false
	nic["ipConfigurations"] = append(configs, second)
	body, _ := json.Marshal(model)
	header := http.Header{"Content-Type": {"application/json"}, "If-Match": {model["etag"].(string)}}
	if status, out := c.call(http.MethodPut, machine, bytes.NewReader(body), header); status != http.StatusOK {
		t.Fatalf("a change is refused: %d %v", status, out)
	}
	nics := c.resource("Microsoft.Compute/virtualMachineScaleSets/nodes/virtualMachines/1/networkInterfaces")
	waittest.Until(t, "the machine has the address", func() bool {
		status, out := c.call(http.MethodGet, nics, nil, nil)
		if status != http.StatusOK {
			t.Fatalf("interfaces are not listed: %d %v", status, out)
		}
		of := out["value"].([]any)[0].(map[string]any)["properties"].(map[string]any)
		return of["provisioningState"] == "Succeeded" && len(of["ipConfigurations"].([]any)) == 2
	})
	if status, _ := c.call(http.MethodPut, machine, bytes.NewReader(body), header); status != http.StatusPreconditionFailed {
		t.Errorf("a model of before the change is accepted: %d", status)
	}
}

// Hosts that are not Azure's are not reached.
func TestOtherHosts(t *testing.T) {
	c := start(t)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/", nil)
	if resp, err := c.http.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("example.com answers %s", resp.Status)
	}
}

func TestOptions(t *testing.T) {
	for text, args := range map[string][]string{
		"unknown argument": {"x"}, "no IPv4 CIDR": {"-subnet=fd00::/64"}, "addresses for 0 to 3 machines": {"-subnet=10.0.0.0/29", "-machines=4"},
		"choose another -listen": {"-listen=127.0.0.1:-1"},
	} {
		if err := Serve(t.Context(), io.Discard, args); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
