# shellcheck shell=bash disable=SC2154 # the caller's variables
# For scripts/quickstart --pods: Convoke installed as users install it, in a pod of the local cluster with a node.
# Needs common.sh, and from the caller $operator_namespace and $namespace.

# In the cluster the registry has this name; for this machine it is an address.
REGISTRY_NAME=registry.$operator_namespace.svc:5000

# ready_field NAME: one of what the local cluster said when it was ready.
ready_field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$STATE/cluster/ready" "$1"; }

# Builds the images that are missing and pushes them; sets image[NAME] to references by digest.
images=(convoke agent web python node packages)
declare -A image=()
provide_images() {
	step "images: ${images[*]}"
	local name reference
	# In the foreground, so that Ctrl-C reaches the builders.
	"$ROOT/scripts/images" push "${images[@]}" >"$STATE/images.out" || die "the images were not built, see above" 3
	while IFS='=' read -r name reference; do
		image[$name]=$reference
	done <"$STATE/images.out"
}

# Applies deploy/ with the image and the options of this cluster.
install_operator() {
	local folder=$STATE/install name=${image[convoke]%@*} arguments
	arguments=$(printf '      - %s\n' operator --controllers=all --allow-insecure-git --single-tenant --leader-elect=false \
		"--internal-registry=$REGISTRY_NAME" "--default-agent-image=${image[agent]}" \
		"--default-proxy-image=${image[web]}" "--default-python-image=${image[python]}" \
		"--default-node-image=${image[node]}" "--npm-registry=http://packages.$operator_namespace.svc:8080/npm" \
		"--pypi-index=http://packages.$operator_namespace.svc:8080/simple/")
	mkdir -p "$folder"
	cat >"$folder/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- $(realpath --relative-to="$(realpath "$folder")" "$ROOT/deploy")
images:
- name: ghcr.io/convoke-dev/convoke
  newName: $name
  digest: ${image[convoke]#*@}
patches:
- target: {kind: Deployment, name: convoke}
  patch: |-
    - op: replace
      path: /spec/template/spec/containers/0/args
      value:
$arguments
YAML
	kubectl apply --server-side --force-conflicts --kustomize "$folder" >/dev/null
	kubectl apply --server-side --force-conflicts -f "$ROOT/deploy/single-tenant.yaml" >/dev/null
	sed "s|IMAGE\$|${image[packages]}|" "$ROOT/scripts/lib/images/packages/packages.yaml" |
		kubectl apply --server-side --force-conflicts -f - >/dev/null
	local crds
	mapfile -t crds < <(kubectl get crds -o name | grep '\.convoke\.dev$')
	kubectl wait --for=condition=Established --timeout=30s "${crds[@]}" >/dev/null
}

# The example's ModelAPI `openai` reads its key from a Secret of the team. Nobody is asked with it here: the image that
# stands in for LiteLLM answers probes.
provide_secret() {
	kubectl create secret generic openai-key --namespace "$namespace" --from-literal=api-key=none --dry-run=client -o json |
		kubectl apply --server-side -f - >/dev/null
	# Pods read no other.
	kubectl label --overwrite --namespace "$namespace" secret/openai-key convoke.dev/agents=allow >/dev/null
}

# Waits until the operator's pod is ready, and says why it is not.
operator_is_ready() {
	kubectl rollout status --namespace "$operator_namespace" deployment/convoke --timeout=90s >/dev/null && return
	kubectl get pods --namespace "$operator_namespace" --output wide >&2 || true
	operator_log >&2
	die "the operator's pod did not become ready within 90 s" 3
}

operator_log() { kubectl logs --namespace "$operator_namespace" deployment/convoke --tail=30; }

# Waits until all agents are Ready, and says which are not.
agents_are_ready() {
	kubectl wait --for=condition=Ready agents --all --namespace "$namespace" --timeout="$1s" >/dev/null 2>&1 && return
	kubectl get agents,modelapis,mcpservers,pods --namespace "$namespace" >&2
	die "not all agents became Ready within $1 s" 3
}
