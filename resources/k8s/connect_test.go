// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive"
)

// outsideAnyPod has the environment of a process that runs in no pod.
func outsideAnyPod(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBERNETES_SERVICE_PORT", "")
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// K8S-1.
func TestWhatIsWrongWithTheConnectionIsNamed(t *testing.T) {
	outsideAnyPod(t)
	for name, c := range map[string]struct {
		config Config
		want   []string
	}{
		"nothing is given":          {Config{}, []string{"no API server is known", "--k8s-kubeconfig-path", "--k8s-api-server"}},
		"absent kubeconfig":         {Config{K8sKubeconfigPath: "/rejectAll/config"}, []string{"--k8s-kubeconfig-path", "/rejectAll/config", "no such file"}},
		"malformed kubeconfig":      {Config{K8sKubeconfigPath: write(t, "malformed", "{clusters")}, []string{"--k8s-kubeconfig-path", "malformed"}},
		"empty kubeconfig":          {Config{K8sKubeconfigPath: write(t, "empty", "")}, []string{"--k8s-kubeconfig-path", "empty", "names no cluster"}},
		"context that is not there": {Config{K8sKubeconfigPath: write(t, "context", "current-context: gone\n")}, []string{"context", "gone"}},
		"missing certificate":       {Config{K8sKubeconfigPath: kubeconfig(t, clientcmdapi.AuthInfo{ClientCertificate: "/rejectAll/tls.crt", ClientKey: "/rejectAll/tls.key"})}, []string{"/rejectAll/tls.crt"}},
		"https without a pod":       {Config{K8sAPIServer: "https://10.0.0.1"}, []string{"https://10.0.0.1", "service account"}},
		"address that is no URL":    {Config{K8sAPIServer: "http://[::1"}, []string{"http://[::1"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newTransport(c.config, cell.BuildInfo{}, slog.New(slog.DiscardHandler), newMetrics())
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// K8S-1. Who made the mistake set an option, and need not know what is built from it.
func TestMistakesAreToldAsOptions(t *testing.T) {
	outsideAnyPod(t)
	const addresses = "is no address of an API server; https://host:port, http://host:port and host:port (plain HTTP) are"
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing is given":    {nil, `--k8s-kubeconfig-path="" (default): no API server is known: set --k8s-kubeconfig-path or --k8s-api-server, or run in a pod`},
		"bad escape":          {[]string{"--k8s-api-server=http://%zz"}, `--k8s-api-server="http://%zz" (flag): "http://%zz" ` + addresses},
		"no host":             {[]string{"--k8s-api-server=http://"}, `--k8s-api-server="http://" (flag): "http://" ` + addresses},
		"two schemes":         {[]string{"--k8s-api-server=http://http://x"}, `--k8s-api-server="http://http://x" (flag): "http://http://x" ` + addresses},
		"another scheme":      {[]string{"--k8s-api-server=ftp://x"}, `--k8s-api-server="ftp://x" (flag): "ftp://x" ` + addresses},
		"half an address":     {[]string{"--k8s-api-server=[::1"}, `--k8s-api-server="[::1" (flag): "[::1" ` + addresses},
		"one of several":      {[]string{"--k8s-api-server-urls=http://a:1,b:port"}, `--k8s-api-server-urls="http://a:1,b:port" (flag): "b:port" ` + addresses},
		"https without a pod": {[]string{"--k8s-api-server=https://10.0.0.1"}, `--k8s-api-server="https://10.0.0.1" (flag): https://10.0.0.1 needs the service account of a pod`},
		"no kubeconfig":       {[]string{"--k8s-kubeconfig-path=/rejectAll", "--k8s-api-server=http://"}, `--k8s-kubeconfig-path="/rejectAll" (flag): reading /rejectAll`},
		"no URL in it": {
			[]string{"--k8s-kubeconfig-path=" + save(t, &clientcmdapi.Config{
				Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: "http://%zz"}}, Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c"}}, CurrentContext: "x",
			})}, `(flag): API server "http://%zz"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := hive.New("operator", Cell, hive.LogTo(io.Discard), hive.Environ(func(string) (string, bool) { return "", false }))
			flags := h.FlagSet()
			if err := errors.Join(flags.Parse(c.args), h.Configure(flags)); err != nil {
				t.Fatal(err)
			}
			err := h.Build()
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	for _, server := range []string{"10.0.0.1", "10.0.0.1:8080", "[::1]:80", "http://a", "https://a:6443/prefix"} {
		if err := cell.ValidateConfig(Config{EnableK8s: true, QPS: 1, Burst: 1, K8sAPIServer: server}); err != nil {
			t.Errorf("%s: %v", server, err)
		}
	}
}

// K8S-1 and K8S-5.
func TestAddressesOfAPIServers(t *testing.T) {
	outsideAnyPod(t)
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"without a scheme":             {Config{K8sAPIServer: "10.0.0.1:8080"}, "http://10.0.0.1:8080"},
		"several":                      {Config{K8sAPIServerURLs: []string{"http://a", "b:80"}}, "http://a http://b:80"},
		"the new flag over the old":    {Config{K8sAPIServer: "old", K8sAPIServerURLs: []string{"new"}}, "http://new"},
		"the kubeconfig over the flag": {Config{K8sAPIServer: "http://a", K8sKubeconfigPath: kubeconfig(t, clientcmdapi.AuthInfo{})}, "https://192.0.2.1:6443"},
	} {
		t.Run(name, func(t *testing.T) {
			d := openTransport(t, func(to *Config) { *to = c.config })
			var got []string
			for _, u := range d.servers.urls {
				got = append(got, strings.TrimSuffix(u.String(), "/"))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("servers %v, want %s", got, c.want)
			}
		})
	}
}

// kubeconfig writes one for a server that is not there.
func kubeconfig(t *testing.T, user clientcmdapi.AuthInfo) string {
	t.Helper()
	return save(t, &clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: "https://192.0.2.1:6443"}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": &user},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	})
}

func save(t *testing.T, c *clientcmdapi.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// pair of certificate and key, valid between the given times from now.
func certificate(t *testing.T, from, to time.Duration) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(to), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

// The authority of a cluster is exchanged, and no other one is trusted meanwhile.
func TestTheAuthorityIsReadForEachConnection(t *testing.T) {
	issue := func() (authority []byte, pair *tls.Certificate) {
		cert, key := certificate(t, -time.Hour, time.Hour)
		made, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return cert, &made
	}
	first, firstPair := issue()
	second, secondPair := issue()
	var shown atomic.Pointer[tls.Certificate]
	shown.Store(firstPair)
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, version.Info{GitVersion: "v1.36.3"}) }))
	api.Config.ErrorLog = log.New(io.Discard, "", 0)
	api.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*shown.Load()}}, nil
	}}
	api.StartTLS()
	t.Cleanup(api.Close)
	file := write(t, "ca.crt", string(first))
	at := func(url string) *guardedTransport {
		return openTransport(t, through(save(t, &clientcmdapi.Config{
			Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: url, CertificateAuthority: file}},
			Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c"}},
			CurrentContext: "x",
		})))
	}
	d := at(api.URL)
	want := func(d *guardedTransport, trouble string) {
		t.Helper()
		d.servers.reconnect()
		_, err := newServer(d).Version(t.Context())
		if (err == nil) != (trouble == "") || err != nil && !strings.Contains(err.Error(), trouble) {
			t.Errorf("got %v, want %q", err, trouble)
		}
	}
	put := func(authority []byte) {
		t.Helper()
		if err := os.WriteFile(file, authority, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want(d, "")
	want(at(strings.Replace(api.URL, "127.0.0.1", "localhost", 1)), "localhost")
	shown.Store(secondPair)
	want(d, file)
	put(second)
	want(d, "")
	put([]byte("nothing"))
	want(d, "holds no certificate")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	want(d, "no such file")
	put(slices.Concat(first, second))
	want(d, "")
}

func TestAClientCertificateThatIsNotValidIsNamedWithTheRemedy(t *testing.T) {
	expired, expiredKey := certificate(t, -2*time.Hour, -time.Hour)
	early, earlyKey := certificate(t, time.Hour, 2*time.Hour)
	good, goodKey := certificate(t, -time.Hour, time.Hour)
	file, keyFile := write(t, "tls.crt", string(expired)), write(t, "tls.key", string(expiredKey))
	for name, c := range map[string]struct {
		user clientcmdapi.AuthInfo
		want []string
	}{
		"expired, in the kubeconfig": {clientcmdapi.AuthInfo{ClientCertificateData: expired, ClientKeyData: expiredKey}, []string{"kubeconfig", "expired on", "restart"}},
		"expired, in a file":         {clientcmdapi.AuthInfo{ClientCertificate: file, ClientKey: keyFile}, []string{file, "expired on", "replace the file"}},
		"not valid yet":              {clientcmdapi.AuthInfo{ClientCertificateData: early, ClientKeyData: earlyKey}, []string{"kubeconfig", "clock"}},
		"valid":                      {clientcmdapi.AuthInfo{ClientCertificateData: good, ClientKeyData: goodKey}, nil},
		"none":                       {clientcmdapi.AuthInfo{Token: "t"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := openTransport(t, through(kubeconfig(t, c.user))).dialer.expired(time.Now())
			if (err == nil) != (c.want == nil) {
				t.Fatalf("%v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

func TestAnExpiredCertificateIsToldByTheRealServersAnswer(t *testing.T) {
	config, err := clientcmd.LoadFromFile(clustertest.Shared(t).Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	cert, key := certificate(t, -2*time.Hour, -time.Hour)
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	}
	path := save(t, config)
	guard := openTransport(t, through(path))
	// The server closes the connection of an unknown client, at times before the
	// response arrives.
	for again := true; again && t.Context().Err() == nil; again = strings.Contains(err.Error(), "GOAWAY") {
		if err = guard.healthz(t.Context()); err == nil {
			t.Fatal("an expired certificate is good enough")
		}
	}
	for _, want := range []string{path, "expired on", "401 Unauthorized"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestTheKubeconfigsProxyIsUsed(t *testing.T) {
	var arrived seen
	proxy := serve(t, func(w http.ResponseWriter, r *http.Request) { arrived.note(r) })
	path := save(t, &clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: "http://192.0.2.1", ProxyURL: proxy}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c"}},
		CurrentContext: "x",
	})
	if err := openTransport(t, through(path)).healthz(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(arrived.all()); n != 1 {
		t.Errorf("%d requests at the proxy, want 1", n)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		flag   string
	}{
		"defaults":            {func(*Config) {}, ""},
		"no limit":            {func(c *Config) { c.QPS, c.Burst = 0, 0 }, ""},
		"negative rate":       {func(c *Config) { c.QPS = -1 }, "operator-k8s-client-qps"},
		"no burst":            {func(c *Config) { c.Burst = 0 }, "operator-k8s-client-burst"},
		"negative timeout":    {func(c *Config) { c.K8sConnectionTimeout = -1 }, "k8s-client-connection-timeout"},
		"negative heartbeat":  {func(c *Config) { c.K8sHeartbeatTimeout = -1 }, "k8s-heartbeat-timeout"},
		"no heartbeat":        {func(c *Config) { c.K8sHeartbeatTimeout = 0 }, ""},
		"hectic heartbeat":    {func(c *Config) { c.K8sHeartbeatTimeout = 1 }, "k8s-heartbeat-timeout"},
		"no time to connect":  {func(c *Config) { c.K8sConnectionTimeout = 1 }, "k8s-client-connection-timeout"},
		"hectic keep-alive":   {func(c *Config) { c.K8sConnectionKeepAlive = 1 }, "k8s-client-connection-keep-alive"},
		"no keep-alive":       {func(c *Config) { c.K8sConnectionKeepAlive = -1 }, ""},
		"off: nothing counts": {func(c *Config) { *c = Config{QPS: -1} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			config := DefaultConfig
			c.change(&config)
			err := cell.ValidateConfig(config)
			if (err == nil) != (c.flag == "") || err != nil && !strings.Contains(err.Error(), c.flag) {
				t.Errorf("%v, want an error about %q", err, c.flag)
			}
		})
	}
}
