// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/cells/health/internal/api"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/health"
)

var discard = slog.New(slog.DiscardHandler)

// API-4 and MET-1; MET-E7.
func TestMetrics(t *testing.T) {
	port, _ := occupy(t) // a warning
	o := start(t, "--enable-metrics", "--operator-pprof", "--operator-pprof-address=127.0.0.1", "--operator-pprof-port="+port)
	got := o.ask(http.MethodGet, "metrics", "/metrics")
	if got.code != 200 || !strings.HasPrefix(got.contentType, "text/plain; version=0.0.4") {
		t.Errorf("GET /metrics: %d %s", got.code, got.contentType)
	}
	for _, want := range []string{
		"\ncilium_operator_process_start_time_seconds ", "\ngo_goroutines ",
		"\n" + `cilium_operator_errors_warnings_total{level="warning",subsystem="health"} 1` + "\n",
		"\n" + `cilium_hive_status{status="ok"} `, "\n" + `cilium_hive_status{status="degraded"} `,
	} {
		if !strings.Contains(got.body, want) {
			t.Errorf("%q is missing in\n%s", want, got.body)
		}
	}
	if strings.Contains(got.body, `status="stopped"`) {
		t.Error("a level that nothing is at is told")
	}
	if got := o.ask(http.MethodGet, "metrics", "/"); got.code != 404 {
		t.Errorf("GET /: %+v", got)
	}
	var samples []api.Sample
	if err := json.Unmarshal([]byte(o.get("/v1/metrics").body), &samples); err != nil || len(samples) < 30 {
		t.Errorf("/v1/metrics has %d samples, %v", len(samples), err)
	}
}

// authority makes certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der := a.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, a.key, a.key)
	a.cert, _ = x509.ParseCertificate(der)
	a.pool = x509.NewCertPool()
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) sign(template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) []byte {
	a.t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

// issue makes a certificate with its key, in PEM.
func (a *authority) issue(name string) (cert, key []byte) {
	a.t.Helper()
	private, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}},
		a.cert, private, a.key)
	text, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text})
}

func writeFiles(t *testing.T, files map[string][]byte) {
	t.Helper()
	for path, text := range files {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// MET-2: TLS, with files that come late, change, and go bad.
func TestMetricsTLS(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile, caFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt")
	a := newAuthority(t)
	o := start(t, "--enable-metrics", "--operator-prometheus-enable-tls", "--operator-prometheus-tls-cert-file="+certFile,
		"--operator-prometheus-tls-key-file="+keyFile, "--operator-prometheus-tls-client-ca-files="+caFile)
	if s := o.status("metrics.tls"); s.Level != health.Degraded || !strings.Contains(s.Error, "tls.crt: no such file") {
		t.Errorf("without files: %+v", s)
	}
	reads, failures := o.sample("certwatcher_read_certificate_total"), o.sample("certwatcher_read_certificate_errors_total")
	if reads == 0 || failures != reads {
		t.Errorf("without files: %v reads, of which %v failed", reads, failures)
	}
	url := "https://" + o.address("metrics") + "/metrics"
	var served string
	ask := func(certs ...tls.Certificate) error {
		client := newClient()
		client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: a.pool, Certificates: certs, VerifyConnection: func(s tls.ConnectionState) error {
			served = s.PeerCertificates[0].Subject.CommonName
			return nil
		}}
		got, err := request(t, client, http.MethodGet, url)
		if err == nil && (got.code != 200 || !strings.Contains(got.body, "go_goroutines")) {
			t.Errorf("the answer is %d", got.code)
		}
		return err
	}
	if err := ask(); err == nil {
		t.Error("served without a certificate")
	}

	cert, key := a.issue("first")
	writeFiles(t, map[string][]byte{certFile: cert, keyFile: key, caFile: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})})
	clientCert, clientKey := a.issue("prometheus")
	pair, err := tls.X509KeyPair(clientCert, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(pair); err != nil || served != "first" {
		t.Errorf("once the files are there: %v, served by %q", err, served)
	}
	if s := o.status("metrics.tls"); s.Level != health.OK {
		t.Errorf("once the files are there: %+v", s)
	}
	if n := o.sample("certwatcher_read_certificate_total"); n != reads+2 || o.sample("certwatcher_read_certificate_errors_total") != failures+1 {
		t.Errorf("%v reads after a connection that failed and one that did not, and %v before", n, reads)
	}
	if err := ask(); err == nil {
		t.Error("a client without a certificate is served")
	}
	stranger := newAuthority(t)
	strangeCert, strangeKey := stranger.issue("stranger")
	if strange, err := tls.X509KeyPair(strangeCert, strangeKey); err != nil || ask(strange) == nil {
		t.Errorf("a client of another authority is served (%v)", err)
	}

	cert, key = a.issue("second")
	writeFiles(t, map[string][]byte{certFile: cert, keyFile: key})
	if err := ask(pair); err != nil || served != "second" {
		t.Errorf("after a rotation: %v, served by %q", err, served)
	}
	writeFiles(t, map[string][]byte{caFile: []byte("nonsense")})
	if err := ask(pair); err == nil || !strings.Contains(o.status("metrics.tls").Error, "ca.crt has no CA certificate") {
		t.Errorf("with a bad authority: %v, %+v", err, o.status("metrics.tls"))
	}
	plain, err := request(t, newClient(), http.MethodGet, "http://"+o.address("metrics")+"/metrics")
	if err == nil && plain.code == 200 {
		t.Error("it is served without TLS, too")
	}
}

func TestTLSNeedsFiles(t *testing.T) {
	_, err := declare(t, "--enable-metrics", "--operator-prometheus-enable-tls")
	if err == nil || !strings.Contains(err.Error(), "needs --operator-prometheus-tls-cert-file and --operator-prometheus-tls-key-file") {
		t.Errorf("accepted: %v", err)
	}
}

// sample is the value of a counter without labels.
func (o *operator) sample(name string) float64 {
	o.t.Helper()
	var samples []api.Sample
	if err := json.Unmarshal([]byte(o.get("/v1/metrics").body), &samples); err != nil {
		o.t.Fatal(err)
	}
	for _, s := range samples {
		if s.Name == name {
			return s.Value
		}
	}
	o.t.Fatalf("there is no sample of %s", name)
	return 0
}

// The job runs where there is a configuration that can change, and not elsewhere.
func TestDriftJob(t *testing.T) {
	dir := t.TempDir()
	for _, o := range []*operator{start(t, "--config-dir="+dir), start(t)} {
		configured := o.hive.Values().Given("config-dir")
		if !configured {
			if s := o.status("job-drift"); s.Reports != 0 {
				t.Errorf("without a directory it reports %+v", s)
			}
			continue
		}
		operatortest.Eventually(t, "the first look", func() bool { return strings.Contains(o.get("/healthz?verbose").body, "drift") })
	}
}
